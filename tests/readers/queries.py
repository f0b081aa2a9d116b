"""Queries of random histories and of the demo's events, as query nodes; and queries without SQL for ClickHouse."""

import random

DATES = {"date_from": "2024-01-01", "date_to": "2024-01-31", "explicitDate": False}
DEMO_DATES = {"date_from": "2024-01-01", "date_to": "2024-06-30"}


def event(name, **more):
    return {"kind": "EventsNode", "event": name, "name": name, **more}


def where(key, operator, value=None, kind="event"):
    return {"key": key, "operator": operator, "value": value, "type": kind}


def trend(series, dates=DATES, interval="day", display=None, breakdown=None, **more):
    node = {"kind": "TrendsQuery", "dateRange": dates, "interval": interval, "series": series, **more}
    if display:
        node["trendsFilter"] = {"display": display}
    if breakdown:
        node["breakdownFilter"] = breakdown
    return node


def funnel(series, dates=DATES, window=(3, "day"), breakdown=None, more=None, **top):
    rules = {"funnelWindowInterval": window[0], "funnelWindowIntervalUnit": window[1], **(more or {})}
    node = {"kind": "FunnelsQuery", "dateRange": dates, "series": series, "funnelsFilter": rules, **top}
    if breakdown:
        node["breakdownFilter"] = breakdown
    return node


ABC = [event("a"), event("b"), event("c")]
BY_PLAN = {"breakdown": "plan", "breakdown_type": "event"}

TRENDS = {
    "total a day": trend([event("a")]),
    "total a week": trend([event("a"), event("b")], interval="week"),
    "total a month": trend([event(None)], dates={"date_from": "2023-12-01", "date_to": "2024-02-29"}, interval="month"),
    "total an hour": trend([event("a")], dates={"date_from": "2024-01-05", "date_to": "2024-01-07"}, interval="hour"),
    "unique a day": trend([event("a", math="dau"), event("b", math="dau")]),
    "unique in all": trend([event("a", math="dau")], display="BoldNumber"),
    "running total": trend([event("a")], display="ActionsLineGraphCumulative"),
    "running uniques": trend([event("a", math="dau")], display="ActionsLineGraphCumulative"),
    "sum, mean, least, most": trend(
        [event("a", math=math, math_property="price") for math in ("sum", "avg", "min", "max", "median", "p90")]),
    "half a sum": trend([event("a", math="sum", math_property="price", math_multiplier=0.5)], interval="week"),
    "running, by plan, two of them": trend(
        [event("a")], display="ActionsLineGraphCumulative", breakdown={**BY_PLAN, "breakdown_limit": 2}),
    "in all, by plan, two of them": trend(
        [event("a"), event("b", math="dau")], display="ActionsTable", breakdown={**BY_PLAN, "breakdown_limit": 2}),
    "numbers per person": trend([event("a", math="avg_count_per_actor"), event("a", math="max_count_per_actor")],
                                interval="week"),
    "by plan": trend([event("a"), event("b", math="dau")], breakdown=BY_PLAN),
    "by plan, two of them": trend([event("a")], breakdown={**BY_PLAN, "breakdown_limit": 2}),
    "by plan, the rest hidden": trend(
        [event("a")], breakdown={**BY_PLAN, "breakdown_limit": 2, "breakdown_hide_other_aggregation": True}),
    "by a number": trend([event("a")], breakdown={"breakdown": "size", "breakdown_type": "event"}),
    "by anything": trend([event("a")], breakdown={"breakdown": "any", "breakdown_type": "event", "breakdown_limit": 50}),
    "by a URL": trend([event("a")], breakdown={"breakdown": "url", "breakdown_type": "event",
                                               "breakdown_normalize_url": True}),
    "by two, in all": trend([event("a", math="sum", math_property="price")], display="ActionsTable",
                            breakdown={"breakdowns": [{"property": "plan", "type": "event"},
                                                      {"property": "ok", "type": "event"}]}),
    "by the distinct id": trend([event("a")], display="ActionsPie", breakdown={
        "breakdowns": [{"property": "distinct_id", "type": "event_metadata"}], "breakdown_limit": 5}),
}



def stickiness(series, interval="day", dates=DATES, **more):
    return {"kind": "StickinessQuery", "dateRange": dates, "interval": interval, "series": series, **more}


def criterion(operator, value, **more):
    return {"stickinessCriteria": {"operator": operator, "value": value}, **more}


STICKINESS = {
    "days of an event": stickiness([event("a"), event("b")]),
    "weeks of every event": stickiness([event(None)], interval="week"),
    "hours": stickiness([event("a")], interval="hour", dates={"date_from": "2024-01-05", "date_to": "2024-01-07"}),
    "cumulative": stickiness([event("a")], stickinessFilter={"computedAs": "cumulative"}),
    "a criterion": stickiness([event("a")], interval="week", stickinessFilter=criterion("gte", 2)),
    "a criterion, cumulative": stickiness([event(None)], stickinessFilter=criterion("lte", 1, computedAs="cumulative")),
    "three days back from the end": stickiness([event("a")], intervalCount=3),
    "a month back from the end": stickiness(
        [event("a")], interval="month", intervalCount=1, dates={"date_from": "2023-12-01", "date_to": "2024-02-29"}),
    "with filters": stickiness([event("a", properties=[where("plan", "exact", ["free"])])], properties=[where("ok", "is_set")]),
}

FILTERS = [
    where("plan", "exact", ["free", "it's \\ \"quoted\""]), where("plan", "is_not", ["free"]),
    where("plan", "icontains", "RE"), where("plan", "not_icontains", "re"),
    where("plan", "regex", "^f.*e$|\\d"), where("plan", "not_regex", "r.e"), where("plan", "regex", "("),
    where("plan", "is_set"), where("plan", "is_not_set"), where("price", "gt", 50), where("price", "lte", "50"),
    where("price", "between", [10, 60]), where("price", "not_between", [10, 60]), where("size", "exact", [3, "5"]),
    where("ok", "exact", ["true"]), where("ok", "is_not", [True]), where("any", "exact", ["5", "x"]),
    where("any", "is_set"), where("any", "gt", 4), where("plan", "gt", "g"), where("rare", "exact", ["here"]),
    where("missing", "is_not", ["x"]), where("timestamp", "gt", "2024-01-10T12:00:00Z", "event_metadata"),
    where("distinct_id", "icontains", "1", "event_metadata"), where("event", "exact", ["a"], "event_metadata"),
]
for number, filter in enumerate(FILTERS):
    TRENDS[f"filter {number}: {filter['key']} {filter['operator']}"] = trend([event(None, properties=[filter])])
TRENDS["filters of both kinds"] = trend(
    [event("a", properties=[where("plan", "exact", ["free"])]), event("b")],
    properties={"type": "OR", "values": [{"type": "AND", "values": [where("price", "gt", 20), where("ok", "is_set")]},
                                         {"type": "AND", "values": [where("plan", "is_not_set")]}]})

FUNNELS = {
    "three steps": funnel(ABC),
    "a window of an hour": funnel(ABC, window=(1, "hour")),
    "one step": funnel([event("a")]),
    "the same event twice": funnel([event("a"), event("a"), event("b")]),
    "any event, then c": funnel([event(None), event("c")]),
    "overlapping steps": funnel([event("a"), event(None, properties=[where("price", "gt", 30)]), event("b")]),
    "five steps": funnel(ABC + [event("a"), event("b")], window=(10, "day")),
    "with a filter": funnel([event("a", properties=[where("plan", "exact", ["free"])]), event("b")],
                            properties=[where("size", "is_set")]),
    "an exclusion": funnel(ABC, more={"exclusions": [
        {"kind": "EventsNode", "event": "d", "funnelFromStep": 0, "funnelToStep": 1}]}),
    "exclusions over all": funnel(ABC, more={"exclusions": [
        {"kind": "EventsNode", "event": "d", "funnelFromStep": 0, "funnelToStep": 2},
        {"kind": "EventsNode", "event": "e", "funnelFromStep": 1, "funnelToStep": 2}]}),
    "strict": funnel(ABC, more={"funnelOrderType": "strict"}),
    "strict, two steps": funnel([event("a"), event("b")], more={"funnelOrderType": "strict"}),
    "by plan": funnel(ABC, breakdown=BY_PLAN),
    "by plan, the last": funnel(ABC, breakdown=BY_PLAN, more={"breakdownAttributionType": "last_touch"}),
    "by plan, all": funnel(ABC, breakdown=BY_PLAN, more={"breakdownAttributionType": "all_events"}),
    "by plan, two of them": funnel(ABC, breakdown={**BY_PLAN, "breakdown_limit": 2}),
    "by URL": funnel(ABC, breakdown={"breakdown": "url", "breakdown_type": "event", "breakdown_normalize_url": True}),
    "by two": funnel(ABC, breakdown={"breakdowns": [{"property": "plan", "type": "event"},
                                                    {"property": "ok", "type": "event"}]}),
    "strict by plan": funnel([event("a"), event("b")], breakdown=BY_PLAN, more={"funnelOrderType": "strict"}),
}

SHOP = [event("product_view"), event("add_to_cart"), event("purchase")]
BY_CHANNEL = {"breakdown": "acquisition_channel", "breakdown_type": "event"}

DEMO = {
    "from product to purchase": funnel(SHOP, dates=DEMO_DATES, window=(14, "day")),
    "within an hour": funnel(SHOP, dates=DEMO_DATES, window=(1, "hour")),
    "strict": funnel(SHOP[:2], dates=DEMO_DATES, more={"funnelOrderType": "strict"}),
    "by channel": funnel(SHOP, dates=DEMO_DATES, breakdown=BY_CHANNEL),
    "purchases a week": trend([event("purchase")], dates=DEMO_DATES, interval="week"),
    "purchases a month": trend([event("purchase")], dates=DEMO_DATES, interval="month"),
    "people a day": trend([event("page_view", math="dau"), event("purchase", math="dau")], dates=DEMO_DATES),
    "all events a day": trend([event(None)], dates=DEMO_DATES),
    "views by channel": trend([event("product_view")], dates=DEMO_DATES, breakdown=BY_CHANNEL),
    "people by platform": trend([event("product_view", math="dau")], dates=DEMO_DATES, interval="month",
                                breakdown={"breakdown": "platform", "breakdown_type": "event"}),
    "mobile purchases": trend([event("purchase", properties=[where("platform", "icontains", "mob")])],
                              dates=DEMO_DATES, interval="month"),
    "buyers in all": trend([event("purchase", math="dau")], dates=DEMO_DATES, display="BoldNumber"),
}

PAGE = {"id": "a", "type": "events"}

# Unsupported queries, and a word of the error message.
REFUSED = {
    "retention": {"kind": "RetentionQuery", "dateRange": DATES, "retentionFilter": {"targetEntity": PAGE, "returningEntity": PAGE}},
    "a lifecycle": {"kind": "LifecycleQuery", "dateRange": DATES, "interval": "day", "series": [event("a")]},
    "paths": {"kind": "PathsQuery", "dateRange": DATES},
    "an earlier period": stickiness([event("a")], compareFilter={"compare": True}),
    "a count of groups": stickiness([event("a", math="unique_group", math_group_type_index=0)]),
    "in any order": funnel(ABC, more={"funnelOrderType": "unordered"}),
    "over time": funnel(ABC, more={"funnelVizType": "trends"}),
    "formula": trend([event("a"), event("b")], trendsFilter={"formula": "A / B"}),
    "earlier period": trend([event("a")], compareFilter={"compare": True}),
    "property email": trend([event("a", properties=[where("email", "is_set", kind="person")])]),
    "person values": trend([event("a")], breakdown={"breakdown": "tier", "breakdown_type": "person"}),
    "last 7 days": trend([event("a", math="weekly_active")]),
    "versions": trend([event("a", properties=[where("plan", "semver_gt", "1.0.0")])]),
    "a date": trend([event("a", properties=[where("plan", "is_date_after", "2024-01-01")])]),
    "$group_0": trend([event("a", properties=[where("$group_0", "is_set")])]),
    "event of a step": funnel(ABC, breakdown=BY_PLAN, more={"breakdownAttributionType": "step",
                                                            "breakdownAttributionValue": 1}),
}


def history(seed, persons=40, events=1500):
    """Events of a month: many at equal times, with values of every kind, some of them rare."""
    chance = random.Random(seed)
    plans = ["free", "pro", "it's \\ \"quoted\"", "", "Größe\nzwei", "free trial 3", "team", "solo"]
    for _ in range(events):
        properties = {}
        if chance.random() < 0.85:
            properties["plan"] = chance.choice(plans)
        if chance.random() < 0.8:
            properties["price"] = chance.choice([chance.randrange(100), round(chance.uniform(0, 100), 2), 50.0, 50])
        if chance.random() < 0.9:
            # Sometimes a string that looks like a number.
            properties["amount"] = "12" if chance.random() < 0.02 else chance.randrange(4000) / 8 + 0.125
        if chance.random() < 0.7:
            properties["size"] = chance.randrange(6)
        if chance.random() < 0.6:
            properties["ok"] = chance.random() < 0.5
        if chance.random() < 0.7:
            properties["any"] = chance.choice([5, 5.0, "5", "x", True, None, [1, "a"], {"b": 2.5}, 7.25, "4e0", -3])
        if chance.random() < 0.5:
            properties["url"] = chance.choice(["http://a/", "http://a", "http://a/?#", "/", "", "http://b/c?d=1"])
        if chance.random() < 0.01:
            properties["rare"] = chance.choice(["here", 1])
        minutes = chance.choice([chance.randrange(31 * 24 * 60), chance.randrange(24 * 60)])
        day, minute = divmod(minutes, 24 * 60)
        fraction = chance.choice(["", "", ".5", ".000001"])
        yield {
            "event": chance.choice("aaabbbccde"),
            "distinct_id": f"user-{chance.randrange(persons)}",
            "timestamp": f"2024-01-{day + 1:02}T{minute // 60:02}:{minute % 60:02}:{chance.choice([0, 30]):02}{fraction}Z",
            "properties": properties,
        }
