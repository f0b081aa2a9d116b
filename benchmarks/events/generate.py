#!/usr/bin/env python3
"""Generates the events of the benchmark as Parquet, the same in every run.

    generate.py --events 10000000 --out events.parquet

Day by day: persons (some are a thousand times as active as others) have sessions, sessions have events a few seconds apart.
Half of the sessions are shopping sessions: some of these add to the cart, some of those buy; a few buy days later. One
person in five sometimes uses a second id. Memory use is that of one day."""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DAYS = 60
DAY = 86_400_000_000
START = 1_767_225_600_000_000  # 2026-01-01
SHOP = ["viewed", "added_to_cart", "purchased"]
OTHERS = ["$pageview", "$autocapture", "$pageleave", "$feature_flag_called", "search", "login", "filter_changed", "video_played",
          "notification_opened", "share_clicked", "settings_opened", "comment_added", "report_created", "file_uploaded", "logout",
          "report_exported", "invite_sent", "plan_compared", "checkout_started", "coupon_applied", "profile_edited", "$identify",
          "error_shown", "team_created", "api_key_created", "password_reset", "signed_up"]
EVENTS = SHOP + OTHERS
VIEWED, CART, BUY, PAGE = 0, 1, 2, 3
PRICED = [CART, BUY, EVENTS.index("checkout_started"), EVENTS.index("coupon_applied")]
BROWSERS = ["Chrome", "Safari", "Mobile Safari", "Edge", "Firefox", "Chrome iOS", "Samsung Internet", "Opera", "Android Mobile", "Brave",
            "Vivaldi", "DuckDuckGo", "Internet Explorer", "UC Browser"]
PLANS = ["free", "starter", "pro", "enterprise"]
COUNTRIES = ("US IN GB DE FR BR CA ES NL AU PL IT MX JP SE TR ID PT CH AR BE DK NO FI IE AT CZ RO GR HU CL CO ZA NG KE EG IL SG KR "
             "VN").split()
URLS = [f"https://app.example.com/{('p', 'docs', 'shop', 'blog')[page % 4]}/{page}" for page in range(2000)]
COLUMNS = ["event", "distinct_id", "person_id", "timestamp", "browser", "current_url", "plan", "amount", "country", "session_id"]


def zipf(random, count, steepness, size):
    """Numbers below `count`, small ones more often."""
    weights = np.cumsum(1 / np.arange(1, count + 1) ** steepness)
    return np.searchsorted(weights / weights[-1], random.random(size)).astype(np.int32)


def ids(numbers, salt):
    """UUIDs that look random, of these numbers."""
    def scramble(number):
        number = (number ^ (number >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        number = (number ^ (number >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        return number ^ (number >> np.uint64(33))

    numbers = numbers.astype(np.uint64) + np.uint64(salt << 48)
    high, low = scramble(numbers * np.uint64(2) + np.uint64(1)), scramble(numbers * np.uint64(2) + np.uint64(2))
    texts = []
    for first, second in zip(high.tolist(), low.tolist()):
        text = f"{first:016x}{second:016x}"
        texts.append(f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}")
    return texts


def coded(codes, values):
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.string()))


def codes_of(random, sessions, of, place, length):
    """The name of each event. `of` is its session, `place` its position in it."""
    codes = zipf(random, len(OTHERS), 1.0, len(of)) + PAGE
    codes[place == 0] = PAGE
    shops = random.random(sessions) < 0.5
    carts = shops & (random.random(sessions) < 0.35) & (length > 3)
    buys = carts & (random.random(sessions) < 0.4) & (length > 4)
    late = ~shops & (random.random(sessions) < 0.03) & (length > 1)
    codes[shops[of] & ((place == 1) | ((place > 1) & (random.random(len(of)) < 0.2)))] = VIEWED
    cart_at = 2 + (random.random(sessions) * (length - 3).clip(1)).astype(np.int64)
    buy_at = cart_at + 1 + (random.random(sessions) * (length - 1 - cart_at).clip(1)).astype(np.int64)
    codes[carts[of] & (place == cart_at[of].clip(max=length[of] - 2))] = CART
    codes[buys[of] & (place == buy_at[of].clip(max=length[of] - 1))] = BUY
    codes[late[of] & (place == 1)] = BUY
    return codes


def day_of(random, day, count, people, number):
    """A table of `count` events of one day; its sessions have numbers from `number` on."""
    length = 1 + random.geometric(1 / 7, count // 4 + 100).clip(max=60)
    sessions = int(np.searchsorted(np.cumsum(length), count)) + 1
    length = length[:sessions]
    length[-1] -= length.sum() - count
    of = np.repeat(np.arange(sessions), length)
    place = np.arange(count) - np.repeat(np.cumsum(length) - length, length)
    person = np.searchsorted(people["activity"], random.random(sessions)).clip(max=len(people["activity"]) - 1)
    codes = codes_of(random, sessions, of, place, length)
    gaps = random.exponential(25e6, count).astype(np.int64) + 1000
    gaps[place == 0] = 0
    passed = np.cumsum(gaps)
    passed -= np.repeat(passed[np.cumsum(length) - length], length)
    begin = ((random.random(sessions) + 0.6 * random.random(sessions)) / 1.6 * 0.93 * DAY).astype(np.int64)
    # Events that would fall on the next day are moved to the end of this one, a microsecond apart.
    time = START + day * DAY + np.minimum(begin[of] + passed, DAY - 1 - (length[of] - place))
    order = np.argsort(time, kind="stable")
    of, codes, time = of[order], codes[order], time[order]
    who = person[of]
    browser = np.where(random.random(sessions) < 0.92, people["browser"][person], zipf(random, len(BROWSERS), 1.1, sessions))
    known, whose = np.unique(who, return_inverse=True)
    second = (known % 5 == 0)[whose] & (of % 2 == 0)
    names = [f"user_{one}" for one in known] + ids(known, 2)
    priced = np.isin(codes, PRICED)
    prices = random.integers(199, 20_000, count) / 100
    table = {
        "event": coded(codes, EVENTS), "distinct_id": coded(whose + second * len(known), names),
        "person_id": coded(whose, ids(known, 1)), "timestamp": pa.array(time, pa.timestamp("us", "UTC")),
        "browser": coded(browser[of], BROWSERS), "current_url": coded(zipf(random, len(URLS), 1.05, count), URLS),
        "plan": coded(people["plan"][who], PLANS), "amount": pa.array(prices, mask=~priced),
        "country": coded(people["country"][who], COUNTRIES), "session_id": coded(of, ids(number + np.arange(sessions), 3)),
    }
    plain = {name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for name, column in table.items()}
    return pa.table([plain[name] for name in COLUMNS], names=COLUMNS)


def generate(events, out, seed=1):
    """Writes the file if it does not exist, and its metadata beside it."""
    out = Path(out)
    note = out.with_suffix(".json")
    if note.exists() and json.loads(note.read_text()) == {"events": events, "seed": seed}:
        return
    random = np.random.default_rng(seed)
    count = max(events // 20, 100)
    activity = np.cumsum((random.pareto(1.2, count) + 0.2).clip(max=400.0))
    people = {"activity": activity / activity[-1], "browser": zipf(random, len(BROWSERS), 1.1, count),
              "plan": np.searchsorted([0.7, 0.88, 0.97, 1.0], random.random(count)).clip(max=3),
              "country": zipf(random, len(COUNTRIES), 1.0, count)}
    out.parent.mkdir(parents=True, exist_ok=True)
    writer, left = None, events
    for day in range(DAYS):
        busy = 0.75 if day % 7 in (2, 3) else 1.1
        size = left if day == DAYS - 1 else min(left, int(events / DAYS * busy))
        left -= size
        for part in range(0, size, 1 << 20):
            table = day_of(random, day, min(size - part, 1 << 20), people, day * 10_000_000 + part)
            writer = writer or pq.ParquetWriter(out, table.schema, compression="zstd")
            writer.write_table(table, row_group_size=1 << 20)
    writer.close()
    note.write_text(json.dumps({"events": events, "seed": seed}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    generate(options.events, options.out)
