"""Files that users write for the simulator, in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from covey.matcher.errors import CoveyError


def read_document(path: str | Path, wrong: type[CoveyError]) -> Any:
    """What a YAML file says; `wrong`, naming the file and why, for one that cannot be read or is no YAML."""
    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise wrong(f"{path}: cannot be read: {reason}") from None
    except yaml.YAMLError as error:
        raise wrong(f"{path}: no YAML: {' '.join(str(error).split())}") from None
