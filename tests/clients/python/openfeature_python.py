"""OpenFeature for Python with PostHog's provider, or with the one of its remote protocol."""

from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from program import evaluate_all, run, task


def posthog_provider():
    from openfeature.contrib.provider.posthog import PostHogProvider
    from posthog import Posthog

    client = Posthog(task["token"], host=task["host"])
    return PostHogProvider(client), client.shutdown


def ofrep_provider():
    from openfeature.contrib.provider.ofrep import OFREPProvider

    return OFREPProvider(task["host"], headers_factory=lambda: {"Authorization": f"Bearer {task['token']}"}), lambda: None


def main():
    is_posthog = task["module"] == "posthog"
    provider, close = posthog_provider() if is_posthog else ofrep_provider()
    api.set_provider(provider)
    client = api.get_client()

    def context(person):
        return EvaluationContext(person["distinct_id"], {"groups": person["groups"], **person["properties"]})

    def value(key, person):
        if key == "layout":
            details = client.get_string_details(key, "default", context(person))
        else:
            details = client.get_boolean_details(key, False, context(person))
        if details.error_code:
            raise ValueError(f"{key}: {details.error_code} {details.error_message}")
        return details.value

    def payload(key, person):
        if is_posthog:
            return client.get_object_value(key, {}, context(person))
        return client.get_string_details(key, "default", context(person)).flag_metadata["payload"]

    results = evaluate_all(value, payload)
    close()
    return [results]


run(main)
