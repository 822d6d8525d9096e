"""The text of a file of a public repository at a commit."""

import subprocess
import urllib.request
from pathlib import Path


def text_of(repository: str, commit: str, file: str, mirrors: Path | None) -> str:
    """From GitHub, or from the git repository `mirrors/OWNER/NAME`.

    Raises:
        RuntimeError: it cannot be had.
    """
    try:
        if mirrors is not None:
            command = ["git", "-C", str(mirrors / repository), "show", f"{commit}:{file}"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout
        with urllib.request.urlopen(f"https://raw.githubusercontent.com/{repository}/{commit}/{file}") as answer:
            return str(answer.read().decode())
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"{repository} has no {file} at {commit[:12]} here: {error}") from error
