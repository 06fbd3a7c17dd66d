"""TEMPORARY until server/context/prompt.py lands."""


def path_comment(path: str, language: str) -> str:
    return f"{'#' if language == 'python' else '//'} {path}\n"
