# SPDX-License-Identifier: Apache-2.0
"""What PyTorch 2.5 and newer call at the end of their own import."""


def load() -> None:
    """Registers the backend.

    If the program imports nezha_torch first, that is under way here, and registers it in a moment.
    """
    import nezha_torch  # noqa: F401
