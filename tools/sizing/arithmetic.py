"""Numbers that show mistakes of masks, grids and loops, and how a size is described in words. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random

SMALL_NUMBER = 12
"""Numbers below this are displayed unchanged."""
PRIME_SPREAD = 64
"""Numbers on either side among which a prime is looked for."""


def is_prime(number: int) -> bool:
    """Tests for a prime by trial division: sizes stay below 2**28, so at most 16,000 divisions."""
    if number < 4 or number % 2 == 0:
        return number in (2, 3)
    return all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2))


def prime_at_least(number: int) -> int:
    """Returns the next prime, or the number itself if none is near."""
    return next((n for n in range(number, number + PRIME_SPREAD) if is_prime(n)), number)


def prime_at_most(number: int, least: int) -> int:
    """Returns the largest near prime of at most `number`, not below `least`; `number` itself if
    there is none."""
    lowest = max(least, number - PRIME_SPREAD)
    return next((n for n in range(number, lowest - 1, -1) if is_prime(n)), number)


def prime_between(low: int, high: int, random: Random) -> int:
    """Returns a prime near a random number of [low, high], or that number if no prime is near."""
    return prime_at_most(random.randint(low, max(low, high)), low)


def is_power_of_two(number: int) -> bool:
    """Says whether a number is 1, 2, 4, 8 and so on."""
    return number > 0 and number & (number - 1) == 0


def irregular_number(number: int, least: int, random: Random) -> int:
    """Draws a prime, an odd number, or a power of two plus or minus one, at most `number` + 1 and at least `least`."""
    power = 1 << max(number, 1).bit_length() - 1
    drawn = random.choice((prime_at_most(number, least), number - 1 | 1, power - 1, power + 1))
    return max(drawn, least)


def divisors(number: int, most: int, extra: Iterable[int] = ()) -> list[int]:
    """Returns up to `most` divisors from 2 on, smallest first: powers of two, `extra`, small ones;
    always ends with the number."""
    powers = [1 << k for k in range(1, 7)]
    small = range(2, min(number, 33))
    preferred = sorted({d for d in (*powers, *extra) if 1 < d < number and number % d == 0})
    further = [d for d in small if number % d == 0 and d not in preferred]
    return [*sorted((*preferred, *further)[: most - 1]), number]


def describe_number(value: int, blocks: Sequence[int]) -> str:
    """Describes in a few words how a size relates to the blocks."""
    if value < SMALL_NUMBER:
        return str(value)
    words = _about_blocks(value, blocks)
    if is_prime(value):
        words.append("prime")
    elif is_power_of_two(value):
        words.append("a power of two")
    elif not words:
        words.append("odd" if value % 2 else "even")
    return " and ".join(words)


def _about_blocks(value: int, blocks: Sequence[int]) -> list[str]:
    if value - 1 in blocks:
        return [f"one more than {value - 1}"]
    if value + 1 in blocks:
        return [f"one less than {value + 1}"]
    if near := next((p for p in (value - 1, value + 1) if p > 2 and is_power_of_two(p)), 0):
        return [f"one {'more' if near < value else 'less'} than {near}"]
    if below := max((b for b in blocks if b < value), default=0):
        return [f"a multiple of {below}" if value % below == 0 else f"beyond {below}"]
    return []
