"""Makes noisy, imbalanced tables: about 7 % of the labels are 1, and most of a label is chance. The labels follow from
thresholds, interactions and kinks, which trees find easily, so that scikit-learn's HistGradientBoostingClassifier has
an area under the ROC curve between 0.70 and 0.80. The rows are drawn from NumPy's default_rng(seed). A table is a
dictionary {column: array}, of which pandas.DataFrame() makes a frame. A missing number is NaN.

    table, label = TABLES["churn"](rows=10_000, seed=1)
"""

import numpy as np

POSITIVES = 0.07


def _labels(draw, score, noise):
    """Draws labels of 0 and 1 with the log-odds `score` plus normal noise, shifted so that POSITIVES are 1."""
    score = score + draw.normal(0, noise, len(score))
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(1 / (1 + np.exp(-(score + middle)))) < POSITIVES else (low, middle)
    return (draw.random(len(score)) < 1 / (1 + np.exp(-(score + low)))).astype(int)


def churn(rows=10_000, seed=1):
    """Returns customers of a telephone company: numbers of different scales, categories, columns without meaning."""
    draw = np.random.default_rng(seed)
    months = draw.integers(1, 73, rows)
    charge = np.round(draw.gamma(4, 18, rows) + 15, 2)
    calls = draw.poisson(1.6, rows)
    age = np.clip(draw.normal(46, 16, rows), 18, 92).round()
    usage = draw.lognormal(3.2, 1.0, rows).round(1)
    contract = draw.choice(["monthly", "one year", "two years"], rows, p=[0.55, 0.25, 0.2])
    payment = draw.choice(["card", "transfer", "cheque", "debit"], rows, p=[0.3, 0.25, 0.25, 0.2])
    network = draw.choice(["fibre", "cable", "mobile", "none"], rows, p=[0.4, 0.3, 0.2, 0.1])
    score = 1.3 * ((contract == "monthly") & (months < 14))
    score += 1.1 * ((calls >= 4) & (charge > 75)) + 0.8 * ((network == "fibre") & (charge > 95))
    score += 1.2 * ((age > 62) ^ (usage > 45)) - 0.9 * ((contract == "two years") & (usage > 20))
    score += 0.9 * ((payment == "cheque") & (age < 33)) + 0.6 * (np.abs(months - 36) < 3)
    table = {"months": months, "charge": charge, "calls": calls, "age": age, "usage": usage, "contract": contract}
    table["payment"], table["network"] = payment, network
    for i in range(4):
        table[f"survey_{i}"] = draw.normal(0, 1 + i, rows).round(3)
    table["region"] = draw.choice([f"region {i}" for i in range(12)], rows)
    table["churned"] = _labels(draw, 1.45 * score, 0.8)
    return table, "churned"


def loans(rows=20_000, seed=1):
    """Returns loans: numbers with far values and with gaps, a ratio that matters, and categories."""
    draw = np.random.default_rng(seed)
    income = draw.lognormal(10.4, 0.6, rows).round(-1)
    amount = draw.lognormal(9.2, 0.8, rows).round(-2)
    years = draw.exponential(6, rows).round(1)
    late = draw.poisson(0.5 * draw.gamma(1, 1, rows), rows)
    used = np.clip(draw.beta(1.3, 2.2, rows), 0, 1).round(3)
    accounts = draw.poisson(7, rows) + 1
    purpose = draw.choice(["car", "house", "debts", "studies", "business", "other"], rows, p=[0.22, 0.2, 0.28, 0.1, 0.08, 0.12])
    home = draw.choice(["rents", "owns", "mortgage"], rows, p=[0.42, 0.12, 0.46])
    ratio = amount / income
    score = 1.2 * (ratio > 0.6) + 0.9 * ((late >= 2) & (used > 0.5)) + 0.8 * ((late >= 1) & (years < 2))
    score += 1.1 * ((purpose == "business") & (income < 40_000)) + 0.7 * ((home == "rents") & (used > 0.7))
    score += 0.8 * ((accounts < 4) ^ (years > 9)) - 0.8 * ((income > 60_000) & (late == 0))
    table = {"income": income, "amount": amount, "years_employed": years, "late": late, "used": used}
    table["accounts"], table["purpose"], table["home"] = accounts, purpose, home
    for i in range(5):
        table[f"score_{i}"] = draw.lognormal(0, 0.5 + 0.3 * i, rows).round(4)
    table["years_employed"] = np.where(draw.random(rows) < 0.12, np.nan, years)
    table["used"] = np.where(draw.random(rows) < 0.05, np.nan, used)
    table["default"] = _labels(draw, 1.35 * score, 0.8)
    return table, "default"


def clicks(rows=30_000, seed=1):
    """Returns views of advertisements: mostly categories, whose pairs matter, and the hour of the day."""
    draw = np.random.default_rng(seed)
    effect = np.random.default_rng(99)  # the same effects for each seed, so that tables of all seeds follow one law
    device = draw.choice(["phone", "tablet", "desktop"], rows, p=[0.6, 0.1, 0.3])
    topic, site = draw.integers(0, 14, rows), draw.integers(0, 25, rows)
    hour = draw.integers(0, 24, rows)
    place = draw.choice(["top", "side", "inside"], rows, p=[0.3, 0.4, 0.3])
    age = np.clip(draw.gamma(5, 7, rows) + 13, 14, 85).round()
    seen = draw.geometric(0.25, rows)
    speed = draw.lognormal(2.5, 0.7, rows).round(2)
    score = effect.normal(0, 0.5, 14)[topic] + effect.normal(0, 0.4, 25)[site]
    score += effect.normal(0, 0.7, (14, 3))[topic, (device == "tablet") + 2 * (device == "desktop")]
    score += 0.9 * ((hour >= 19) & (device == "phone")) + 0.8 * ((place == "top") & (seen <= 2))
    score += 0.9 * ((age < 24) & (topic < 5)) - 0.8 * ((seen > 6) | (speed > 30))
    table = {"device": device, "topic": np.array([f"topic {i}" for i in topic]), "site": np.array([f"site {i}" for i in site])}
    table["hour"], table["place"], table["age"], table["seen"], table["speed"] = hour, place, age, seen, speed
    for i in range(3):
        table[f"signal_{i}"] = draw.normal(0, 1, rows).round(3)
    table["clicked"] = _labels(draw, 1.2 * score, 0.6)
    return table, "clicked"


TABLES = {"churn": churn, "loans": loans, "clicks": clicks}
