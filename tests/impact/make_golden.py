"""Writes golden.json: 1,000 random tables of two or three variants, with what scipy, statsmodels and mpmath calculate for them.

    python3 -m venv venv && venv/bin/pip install -r tests/impact/requirements.txt
    venv/bin/python tests/impact/make_golden.py

The tables are chosen with a fixed seed. `pennon-analytics --test suite impact_arithmetic::` compares the product's own
arithmetic with the file. What each number is, is defined in docs/impact.md; nothing here is derived from the product's code:
posterior probabilities are integrals of scipy's distributions over Gauss-Legendre nodes, some of which are compared with
integrals of mpmath at 30 digits.
"""

import json
import math
import random
from pathlib import Path

import mpmath
import numpy as np
from scipy import optimize, stats
from scipy.stats import chisquare
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint, proportions_ztest

SEED = 20240917
TABLES = 1_000
# Every table has frequentist numbers and chances; intervals of posterior distributions take longer, and every tenth has them.
INTERVALS_EVERY = 10
NODES, WEIGHTS = np.polynomial.legendre.leggauss(600)
STUDENT_NODES, STUDENT_WEIGHTS = np.polynomial.legendre.leggauss(2_000)
# Quantiles between which a distribution rises.
RISES = [1e-12, 1e-5, 0.1, 0.5, 0.9, 1 - 1e-5, 1 - 1e-12]


def random_persons(dice):
    """A number of persons, from a few to a million."""
    return max(2, round(10 ** dice.uniform(0.7, 6)))


def random_table(dice):
    variants = []
    base = 10 ** dice.uniform(-3, -0.05)
    mean, deviation = dice.choice([-1, 1, 1, 1]) * 10 ** dice.uniform(-2, 4), 10 ** dice.uniform(-2, 4)
    persons = random_persons(dice)
    for _ in range(dice.choice([2, 2, 3])):
        exposed = persons if dice.random() < 0.2 else max(2, round(persons * dice.uniform(0.5, 2)))
        rate = min(1.0, base * dice.uniform(0.7, 1.4))
        spread = math.sqrt(max(exposed * rate * (1 - rate), 0))
        converted = min(exposed, max(0, round(exposed * rate + dice.gauss(0, 1) * spread)))
        if dice.random() < 0.02:
            converted = dice.choice([0, exposed])
        own = deviation * dice.uniform(0.5, 2)
        variants.append(
            {
                "persons": exposed,
                "converted": converted,
                "mean": mean + dice.gauss(0, 2) * own / math.sqrt(exposed),
                "variance": own * own,
            }
        )
    return {"level": dice.choice([0.8, 0.9, 0.95, 0.95, 0.99]), "variants": variants}


class Beta:
    """The posterior of a rate, with Jeffreys' prior."""

    def __init__(self, variant):
        a, b = variant["converted"] + 0.5, variant["persons"] - variant["converted"] + 0.5
        self.a, self.b = a, b
        self.frozen, self.flipped = stats.beta(a, b), stats.beta(b, a)

    def nodes(self, splits=()):
        """Nodes and weights between quantiles, the median and `splits`: over an angle, as there may be roots at the ends of each part."""
        low, high = self.frozen.ppf(1e-17), self.frozen.isf(1e-17)
        low, high = (0.0 if low < 1e-12 else low), (1.0 if high > 1 - 1e-12 else high)
        inner = [self.frozen.ppf(0.5), *splits]
        ends = sorted({low, high, *(float(split) for split in inner if low < split < high)})
        x, w = [], []
        angle = 0.25 * math.pi * (NODES + 1)
        for start, end in zip(ends, ends[1:]):
            below, above = start + (end - start) * np.sin(angle) ** 2, (1 - end) + (end - start) * np.cos(angle) ** 2
            # Where the density may have a pole at 1, by the distance from it.
            density = self.frozen.pdf(below) if start < inner[0] else self.flipped.pdf(above)
            x.append(below)
            w.append(0.25 * math.pi * WEIGHTS * (end - start) * np.sin(2 * angle) * density)
        x, w = np.concatenate(x), np.concatenate(w)
        keep = np.isfinite(w)
        return x[keep], w[keep]


class Student:
    """The posterior of a mean, with the reference prior."""

    def __init__(self, variant):
        self.frozen = stats.t(variant["persons"] - 1, variant["mean"], math.sqrt(variant["variance"] / variant["persons"]))

    def nodes(self, _splits=()):
        """Nodes and weights over the quantiles' logits, whose range is far enough for heavy tails."""
        t = 60 * STUDENT_NODES
        u = 1 / (1 + np.exp(-t))
        x = np.where(t < 0, self.frozen.ppf(u), self.frozen.isf(1 / (1 + np.exp(t))))
        return x, 60 * STUDENT_WEIGHTS * u * (1 / (1 + np.exp(t)))


def expectation(nodes, function):
    x, w = nodes
    return float(np.sum(w * function(x)))


def chance_below(control, treatment):
    return expectation(control.nodes(), treatment.frozen.sf)


def chances_to_be_largest(posteriors):
    def chance(index):
        def product(x):
            values = np.ones_like(x)
            for other, posterior in enumerate(posteriors):
                if other != index:
                    values = values * posterior.frozen.cdf(x)
            return values

        return expectation(posteriors[index].nodes(), product)

    return [chance(index) for index in range(len(posteriors))]


def quantile(cdf, probability, guess, spread):
    low, high = guess - spread, guess + spread
    while cdf(low) > probability:
        low -= 2 * (guess - low)
    while cdf(high) < probability:
        high += 2 * (high - guess)
    return optimize.brentq(lambda x: cdf(x) - probability, low, high, xtol=1e-15 * max(spread, 1e-300), rtol=1e-15)


def difference_interval(control, treatment, level):
    center = treatment.frozen.median() - control.frozen.median()
    spread = math.hypot(*(it.frozen.isf(0.16) - it.frozen.median() for it in (control, treatment)))

    rises = treatment.frozen.ppf(RISES)

    def cdf(difference):
        # The treatment's distribution begins, rises and ends there.
        nodes = control.nodes([-difference, 1 - difference, *(point - difference for point in rises)])
        return expectation(nodes, lambda x: treatment.frozen.cdf(x + difference))

    tail = (1 - level) / 2
    return [quantile(cdf, probability, center, spread) for probability in (tail, 1 - tail)]


def ratio_interval(control, treatment, level):
    """Of rates."""
    rises = treatment.frozen.ppf(RISES)

    def cdf(logarithm):
        ratio = math.exp(logarithm)
        nodes = control.nodes([1 / ratio, *(point / ratio for point in rises)])
        return expectation(nodes, lambda x: treatment.frozen.cdf(x * ratio))

    center = math.log(treatment.frozen.median() / control.frozen.median())
    tail = (1 - level) / 2
    return [math.exp(quantile(cdf, probability, center, 0.1)) for probability in (tail, 1 - tail)]


def welch(treatment, control, level):
    result = stats.ttest_ind_from_stats(
        treatment["mean"], math.sqrt(treatment["variance"]), treatment["persons"],
        control["mean"], math.sqrt(control["variance"]), control["persons"], equal_var=False,
    )
    parts = [it["variance"] / it["persons"] for it in (treatment, control)]
    freedom = sum(parts) ** 2 / sum(part**2 / (it["persons"] - 1) for part, it in zip(parts, (treatment, control)))
    interval = stats.t.interval(level, freedom, treatment["mean"] - control["mean"], math.sqrt(sum(parts)))
    return {"p_value": float(result.pvalue), "interval": [float(end) for end in interval]}


def sequential(difference, variance, persons, level):
    """The normal mixture likelihood ratio in its integral's closed form, and its inversion by a root finder."""
    alpha = 1 - level
    factor = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / 5_000
    mixture = stats.norm(0, math.sqrt(factor * variance * persons + variance))
    null = stats.norm(0, math.sqrt(variance))

    def log_ratio(at):
        return mixture.logpdf(at) - null.logpdf(at)

    high = math.sqrt(variance)
    while log_ratio(high) < -math.log(alpha):
        high *= 2
    half = optimize.brentq(lambda at: log_ratio(at) + math.log(alpha), 0, high, xtol=1e-300, rtol=1e-15)
    return {"p_value": min(1.0, math.exp(-log_ratio(difference))), "interval": [difference - half, difference + half]}


def compare(control, treatment, level, with_intervals):
    n, k = [it["persons"] for it in (treatment, control)], [it["converted"] for it in (treatment, control)]
    rates = [a / b for a, b in zip(k, n)]
    pooled = sum(k) / sum(n)
    compared = {
        "newcombe": [float(end) for end in confint_proportions_2indep(k[0], n[0], k[1], n[1], method="newcomb", compare="diff", alpha=1 - level)],
        "z_test": float(proportions_ztest(k, n)[1]) if 0 < pooled < 1 else 1.0,
        "katz": None,
        "welch": welch(treatment, control, level),
        "sequential_rate": None,
        "chance_rate": chance_below(Beta(control), Beta(treatment)),
        "chance_mean": chance_below(Student(control), Student(treatment)),
    }
    if min(k) > 0:
        compared["katz"] = [float(end) for end in confint_proportions_2indep(k[0], n[0], k[1], n[1], method="log", compare="ratio", alpha=1 - level)]
    variance = sum(rate * (1 - rate) / count for rate, count in zip(rates, n))
    if variance > 0:
        compared["sequential_rate"] = sequential(rates[0] - rates[1], variance, sum(n), level)
    variance = sum(it["variance"] / it["persons"] for it in (treatment, control))
    compared["sequential_mean"] = sequential(treatment["mean"] - control["mean"], variance, sum(n), level)
    if with_intervals:
        compared["rate_difference"] = difference_interval(Beta(control), Beta(treatment), level)
        compared["rate_ratio"] = ratio_interval(Beta(control), Beta(treatment), level)
        compared["mean_difference"] = difference_interval(Student(control), Student(treatment), level)
    return compared


def calculate(table, with_intervals):
    level, variants = table["level"], table["variants"]
    shares = [1.0] * len(variants)
    observed = [it["persons"] for it in variants]
    expected = [sum(observed) * share / sum(shares) for share in shares]
    ratio = chisquare(observed, expected)
    return {
        **table,
        "wilson": [[float(end) for end in proportion_confint(it["converted"], it["persons"], 1 - level, method="wilson")] for it in variants],
        "beta": [[float(Beta(it).frozen.ppf(p)) for p in ((1 - level) / 2, (1 + level) / 2)] for it in variants],
        "student": [[float(end) for end in Student(it).frozen.interval(level)] for it in variants],
        "chi_square": [float(ratio.statistic), float(ratio.pvalue)] if min(expected) >= 5 else None,
        "best_rate": chances_to_be_largest([Beta(it) for it in variants]),
        "best_mean": chances_to_be_largest([Student(it) for it in variants]),
        "compared": [compare(variants[0], it, level, with_intervals) for it in variants[1:]],
    }


def check_with_mpmath(table):
    """Compares the chances of a table with integrals at 30 digits."""
    mpmath.mp.dps = 30
    control, treatment = (Beta(it) for it in table["variants"][:2])
    points = sorted({0.0, 1.0, *(float(it.frozen.ppf(p)) for it in (control, treatment) for p in (1e-15, 1e-6, 0.1, 0.5, 0.9, 1 - 1e-6))})

    def density(x):
        if x in (0, 1):  # A node that was rounded to a pole.
            return mpmath.mpf(0)
        return x ** (control.a - 1) * (1 - x) ** (control.b - 1) / mpmath.beta(control.a, control.b)

    def below(x):
        return density(x) * mpmath.betainc(treatment.a, treatment.b, x, 1, regularized=True)

    want = mpmath.quad(below, points)
    got = table["compared"][0]["chance_rate"]
    assert abs(got - want) < 1e-11, (table, got, want)


def main():
    dice = random.Random(SEED)
    tables = [calculate(random_table(dice), index % INTERVALS_EVERY == 0) for index in range(TABLES)]
    small = [table for table in tables if max(it["persons"] for it in table["variants"]) < 200][:10]
    for table in small:
        check_with_mpmath(table)
    path = Path(__file__).with_name("golden.json")
    lines = ",\n".join(json.dumps(table, separators=(",", ":")) for table in tables)
    path.write_text("[\n" + lines + "\n]\n", encoding="utf-8")
    print(f"{len(tables)} tables, {len(small)} of them compared with mpmath")


if __name__ == "__main__":
    main()
