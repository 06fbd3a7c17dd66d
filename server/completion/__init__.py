"""From a place in a document to the text that is offered there."""
