"""The editor side of dflash-lsp: language server, command line, and the engine's HTTP process."""

__version__ = "0.1.0"
