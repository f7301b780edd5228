"""Near duplicates by MinHash signatures (Broder 1997) and banding, in arrays of a fixed size per
row.

Two rows are compared only if their references compute the same graph and, for repairs, the tools'
messages agree: generated kernels share their skeleton on purpose, and an additional operation or
another mistake makes another example, however similar the texts.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Signature: TypeAlias = NDArray[np.uint32]

PERMUTATIONS = 128
"""Number of hashes in a MinHash signature."""
SHINGLE_TOKENS = 5
"""Number of consecutive tokens in a shingle."""
NEAR_COPY_SIMILARITY = 0.7
"""Share of equal hashes from which on a row is a near copy of an accepted row."""
BANDS, IN_BAND = 25, 5
"""A pair of likeness 0.7 shares a band with probability 1 - (1 - 0.7^5)^25 = 0.99."""
MINHASH_SEED = 1
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")


def minhash_signature(text: str) -> Signature:
    """Returns 128 numbers (uint32) of the text's shingles of five tokens."""
    import numpy as np
    from datasketch import MinHash

    tokens = _TOKEN.findall(text)
    # A text shorter than a shingle is a single shingle.
    starts = range(max(len(tokens) - SHINGLE_TOKENS + 1, 1))
    shingles = {" ".join(tokens[start : start + SHINGLE_TOKENS]) for start in starts}
    sketch = MinHash(num_perm=PERMUTATIONS, seed=MINHASH_SEED, hashfunc=zlib.crc32)
    sketch.update_batch(sorted(shingle.encode("utf-8", "replace") for shingle in shingles))
    signature: Signature = sketch.hashvalues.astype(np.uint32)
    return signature


class NearDuplicates:
    """Accepted rows so far, at about 800 bytes a row."""

    def __init__(self) -> None:
        self._signatures: list[Signature] = []
        self._bands: dict[int, int] = {}
        """Hash of (group, band) -> the last row that had it."""

    def is_duplicate(self, group: str, signature: Signature) -> bool:
        """Returns whether an accepted row of the group is similar enough; otherwise adds the row."""
        import numpy as np

        keys = []
        for band in range(BANDS):
            part = signature[band * IN_BAND : (band + 1) * IN_BAND]
            keys.append(hash((group, band, part.tobytes())))
        # Only rows with an equal band are compared in full.
        for number in {self._bands[key] for key in keys if key in self._bands}:
            if float(np.mean(self._signatures[number] == signature)) >= NEAR_COPY_SIMILARITY:
                return True
        self._signatures.append(signature)
        self._bands.update(dict.fromkeys(keys, len(self._signatures) - 1))
        return False
