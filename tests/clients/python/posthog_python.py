"""posthog (PyPI) of any version: flags for each person, then events."""

from posthog import Posthog
from posthog.version import VERSION
from program import evaluate_all, measure, parse_payload, run, task


def capture(client, number):
    properties = {"number": number}
    if int(VERSION.partition(".")[0]) < 6:
        client.capture("python", task["event"], properties)
    else:
        client.capture(task["event"], distinct_id="python", properties=properties)


def options(person):
    return {"groups": person["groups"], "person_properties": person["properties"]}


def evaluate_with_one_request(client):
    """All flags of a person with one request, which version 7 added."""
    results = []
    for person in task["persons"]:
        flags = measure(lambda: client.evaluate_flags(person["distinct_id"], **options(person)))  # noqa: B023
        values = {key: flags.get_flag(key) for key in task["flags"]}
        results.append({"values": values, "payload": parse_payload(flags.get_flag_payload("layout"))})
    return results


def main():
    client = Posthog(task["token"], host=task["host"])
    rounds = []
    rounds.append(evaluate_all(
        lambda key, person: client.get_feature_flag(key, person["distinct_id"], **options(person)),
        lambda key, person: client.get_feature_flag_payload(key, person["distinct_id"], **options(person)),
    ))
    if hasattr(client, "evaluate_flags"):
        rounds.append(evaluate_with_one_request(client))
    for number in range(task["events"]):
        capture(client, number)
    measure(client.shutdown)
    return rounds


run(main)
