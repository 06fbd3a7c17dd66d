"""How good completions are: held-out holes by language and kind, and an infilling benchmark whose tests are run."""
