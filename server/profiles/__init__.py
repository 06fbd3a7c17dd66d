"""Profiles: which target, draft, prompt format and engine serve a completion."""

from server.profiles.loading import DEFAULT_PROFILE, ProfileError, load_profile, own_profiles, shipped_profiles
from server.profiles.settings import EngineSettings, ModelSource, Profile, PromptSettings, TextSettings

__all__ = [
    "DEFAULT_PROFILE",
    "EngineSettings",
    "ModelSource",
    "Profile",
    "ProfileError",
    "PromptSettings",
    "TextSettings",
    "load_profile",
    "own_profiles",
    "shipped_profiles",
]
