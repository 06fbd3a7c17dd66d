"""Which languages use what others define."""

from __future__ import annotations

from server.context.languages import Language

# Languages that use each other's definitions; any other stands alone.
_FAMILIES = {
    **dict.fromkeys(("javascript", "javascriptreact", "typescript", "typescriptreact"), "script"),
    **dict.fromkeys(("c", "cpp"), "c"),
    **dict.fromkeys(("java", "kotlin", "scala"), "jvm"),
    **dict.fromkeys(("css", "scss"), "style"),
}
# A page defines nothing itself, but names classes, custom elements and functions.
_ALSO_USES = {"html": frozenset({"style", "script"})}


def family(language: Language) -> str:
    """The name of the languages that a language shares its definitions with."""
    return _FAMILIES.get(language.name, language.name)


def may_use(user: Language, definer: Language) -> bool:
    """Whether names in a file of `user` may mean what a file of `definer` defines."""
    mine, other = family(user), family(definer)
    return mine == other or other in _ALSO_USES.get(mine, frozenset())
