"""Near duplicates: MinHash signatures (Broder 1997) and banding, kept in arrays of a fixed size a row.

Two rows are held against each other only where their references compute the same graph and, for repairs, the tools said
the same: generated kernels share their skeleton on purpose, and one operation more or another mistake is another
example however alike the texts are.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

PERMUTATIONS = 128
SHINGLE_TOKENS = 5
NEAR_COPY_SIMILARITY = 0.7
BANDS, IN_BAND = 25, 5
"""A pair of likeness 0.7 shares a band with probability 1 - (1 - 0.7^5)^25 = 0.99."""
MINHASH_SEED = 1
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")


def minhash_signature(text: str) -> Any:
    """128 numbers (uint32) of the text's shingles of five tokens."""
    import numpy as np
    from datasketch import MinHash

    tokens = _TOKEN.findall(text)
    shingles = {
        " ".join(tokens[i : i + SHINGLE_TOKENS]).encode("utf-8", "replace")
        for i in range(max(len(tokens) - SHINGLE_TOKENS + 1, 1))
    }
    sketch = MinHash(num_perm=PERMUTATIONS, seed=MINHASH_SEED, hashfunc=zlib.crc32)
    sketch.update_batch(sorted(shingles))
    return sketch.hashvalues.astype(np.uint32)


class NearDuplicates:
    """Rows that were kept so far. About 800 bytes a row."""

    def __init__(self) -> None:
        self._signatures: list[Any] = []
        self._bands: dict[int, int] = {}
        """Hash of (group, band) -> the last row that had it."""

    def seen(self, group: str, signature: Any) -> bool:
        """Whether a row of the same group is as like as the threshold; otherwise the row is remembered."""
        import numpy as np

        keys = [
            hash((group, band, signature[band * IN_BAND : (band + 1) * IN_BAND].tobytes()))
            for band in range(BANDS)
        ]
        for number in {self._bands[key] for key in keys if key in self._bands}:
            if float(np.mean(self._signatures[number] == signature)) >= NEAR_COPY_SIMILARITY:
                return True
        self._signatures.append(signature)
        self._bands.update(dict.fromkeys(keys, len(self._signatures) - 1))
        return False
