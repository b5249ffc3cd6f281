"""Priors over network weights.

A prior is a value-hashed callable `Weight -> numpyro distribution of one entry`; entries are independent.
`scale` is the distribution's own scale parameter, either a positive number for every weight, or "fan_in":
gain / sqrt(fan_in).

Location: the weight's `center`, which is 1 for norm gains and 0 for everything else.
Without a fan-in (biases, norm gains, token and position tables), "fan_in" means scale = gain, as if the
fan-in were 1.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpyro.distributions as dist

from ptx.models import checks
from ptx.models.network import Weight

Prior = Callable[[Weight], dist.Distribution]
Scale = float | Literal["fan_in"]


@dataclass(frozen=True)
class normal:
    """w ~ Normal(center, scale): sd = scale."""

    scale: Scale = 1.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        _check_scale(self)

    def __call__(self, weight: Weight) -> dist.Distribution:
        """The distribution of one entry of `weight`."""
        return dist.Normal(weight.center, _scale(self, weight))


@dataclass(frozen=True)
class laplace:
    """w ~ Laplace(center, scale): sd = sqrt(2) scale."""

    scale: Scale = 1.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        _check_scale(self)

    def __call__(self, weight: Weight) -> dist.Distribution:
        """The distribution of one entry of `weight`."""
        return dist.Laplace(weight.center, _scale(self, weight))


@dataclass(frozen=True)
class student_t:
    """w ~ StudentT(df, center, scale): sd = scale sqrt(df / (df - 2)) for df > 2, infinite otherwise."""

    df: float = 4.0
    scale: Scale = 1.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "df", checks.positive("df", self.df))
        _check_scale(self)

    def __call__(self, weight: Weight) -> dist.Distribution:
        """The distribution of one entry of `weight`."""
        return dist.StudentT(self.df, weight.center, _scale(self, weight))


@dataclass(frozen=True)
class half_normal:
    """w ~ |Normal(0, scale)|, positive: for a learned noise scale."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", checks.positive("scale", self.scale))

    def __call__(self, weight: Weight) -> dist.Distribution:
        """The distribution of one entry of `weight`, whose center is not used."""
        return dist.HalfNormal(self.scale)


@dataclass(frozen=True, repr=False)
class by_site:
    """A prior for each weight by the first pattern (shell-style, `*` and `?`) that matches its site name.

    by_site({"attention.*": normal("fan_in"), "*.bias": laplace(0.1), "*": normal()}) holds the rules as a
    tuple of pairs, so equal rules in equal order are equal and hash alike. ValueError, where the model is
    built: a rule that wins no weight, whether misspelt or shadowed by an earlier one, and a weight that no
    rule wins.
    """

    rules: tuple[tuple[str, Prior], ...]

    def __init__(self, rules: Mapping[str, Any]) -> None:
        if not isinstance(rules, Mapping) or not rules:
            raise TypeError(f"by_site takes a mapping such as {{'*': normal()}}, got {rules!r}")
        if not all(isinstance(pattern, str) for pattern in rules):
            raise TypeError(f"the patterns of by_site are strings, got {list(rules)}")
        if any(isinstance(rule, by_site) for rule in rules.values()):
            raise TypeError(
                "by_site rules cannot hold another by_site; write its patterns out, the first match wins"
            )
        object.__setattr__(self, "rules", tuple((pattern, as_prior(rule)) for pattern, rule in rules.items()))

    def __repr__(self) -> str:
        return f"by_site({dict(self.rules)!r})"

    def assign(self, weights: Mapping[str, Weight]) -> dict[str, Prior]:
        """The prior of each weight, or ValueError that lists unmatched weights and unused rules."""
        winner = {name: next((p for p, _ in self.rules if fnmatchcase(name, p)), None) for name in weights}
        unmatched = [name for name, pattern in winner.items() if pattern is None]
        unused = [_unused(p, weights) for p, _ in self.rules if p not in winner.values()]
        if unmatched or unused:
            parts = [f"weights that no rule matches: {', '.join(unmatched)}"] if unmatched else []
            parts += [f"rules that win no weight: {', '.join(unused)}"] if unused else []
            raise ValueError(
                f"by_site leaves {'; '.join(parts)}. The weights are {', '.join(weights)}. The first match wins"
            )
        rules = dict(self.rules)
        return {name: rules[pattern] for name, pattern in winner.items() if pattern is not None}


def as_prior(prior: Any) -> Any:
    """`prior`, made with its defaults if it came as a class: `priors.normal` is `priors.normal()`."""
    prior = prior() if isinstance(prior, type) and prior is not by_site else prior
    if isinstance(prior, dist.Distribution):
        raise TypeError(
            "a NumPyro distribution is not hashed by value; use priors.normal, laplace, student_t or a frozen "
            "dataclass with __call__(weight) that returns it"
        )
    if not (isinstance(prior, by_site) or callable(prior)):
        raise TypeError(
            f"a prior is priors.normal(), laplace(), student_t() or by_site({{...}}), got {prior!r}"
        )
    return prior


def assign(prior: Prior | by_site, weights: Mapping[str, Weight]) -> dict[str, Prior]:
    """The prior of each weight by site name."""
    return prior.assign(weights) if isinstance(prior, by_site) else dict.fromkeys(weights, prior)


def _unused(pattern: str, weights: Mapping[str, Weight]) -> str:
    if any(fnmatchcase(name, pattern) for name in weights):
        return f"{pattern!r} (earlier rules take all it matches)"
    pieces = {piece for name in weights for piece in (name, *name.split("."))}
    close = difflib.get_close_matches(pattern.strip("*?."), sorted(pieces), n=1)
    return f"{pattern!r} (did you mean {close[0]!r}?)" if close else repr(pattern)


def _check_scale(prior: Any) -> None:
    object.__setattr__(prior, "gain", checks.positive("gain", prior.gain))
    if isinstance(prior.scale, str):
        checks.choice("scale", prior.scale, ("fan_in",))
        return
    object.__setattr__(prior, "scale", checks.positive("scale", prior.scale))
    if prior.gain != 1.0:
        raise ValueError(
            f"gain belongs to scale='fan_in'; with scale={prior.scale} multiply the scale by {prior.gain} yourself"
        )


def _scale(prior: Any, weight: Weight) -> float:
    if prior.scale != "fan_in":
        return prior.scale
    return prior.gain / (weight.fan_in or 1) ** 0.5
