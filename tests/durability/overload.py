#!/usr/bin/env python3
"""Load below and above what a server takes: at 70 % of its capacity no request fails, and latency and memory stay as they are; at 150 %
it refuses what it cannot process, evaluations go on, and afterwards it is at rest within seconds.

    overload.py PENNON [--minutes N] [--seed S]

The mix has evaluations, captures, reads, writes and calculations. Capacity is what clients get that each wait for their response. The load
itself is open: requests are sent when they are due, whether or not earlier ones have a response. Traffic and server share the machine.
"""

import asyncio
import collections
import time
from urllib.parse import urlsplit

from installation import PROJECT, TOKEN, Campaign
from traffic import (EVALUATION, Evaluations, Memory, event, percentile, request_bytes, sample_evaluations, seconds_until_calm, start_filled,
                     trends)

CLIENTS, WARM_SECONDS, CAPACITY_SECONDS, OVERLOAD_SECONDS = 48, 10, 20, 40
CONNECTIONS_MAX, REUSE_SECONDS = 1_500, 50
STEADY, OVERLOAD = 0.7, 1.5
# Requests of each class in a hundred.
MIX = {"evaluation": 50, "capture": 20, "read": 20, "write": 5, "calculation": 5}
SUCCESS = (200, 201)
# What noise of a machine with two cores does to a 99th percentile.
NOISE_MILLISECONDS = 10
RECOVERY_SECONDS = 5
FLAT = 1.25


class Traffic:
    """Requests of the mix over reused connections."""

    def __init__(self, url, insights, random):
        self.host, self.port = urlsplit(url).hostname, urlsplit(url).port
        self.insights, self.random = insights, random
        self.idle, self.open, self.sent = collections.deque(), 0, 0
        self.classes = [name for name, share in MIX.items() for _ in range(share)]

    def next_request(self):
        self.sent += 1
        kind, number = self.random.choice(self.classes), self.sent
        if kind == "evaluation":
            return kind, request_bytes("POST", "/flags/?v=2", {**EVALUATION, "distinct_id": f"person-{number % 5000}"})
        if kind == "capture":
            return kind, request_bytes("POST", "/batch/", {"api_key": TOKEN, "batch": [event("clicked", number)]})
        if kind == "read":
            return kind, request_bytes("GET", f"{PROJECT}/feature_flags/?limit=20&offset={number % 100}", None)
        if kind == "write":
            return kind, request_bytes("PATCH", f"{PROJECT}/insights/{self.random.choice(self.insights)}/", {"name": f"Name {number}"})
        return kind, request_bytes("POST", f"{PROJECT}/query/", trends(interval="day", breakdownFilter={"breakdown": "page", "breakdown_type": "event"}))

    async def send(self, request):
        """(status, whether the response has a Retry-After)."""
        # A server closes connections that were idle for 75 s, perhaps just when a request is sent.
        while self.idle and time.monotonic() - self.idle[0][2] > REUSE_SECONDS:
            self.idle.popleft()[1].close()
            self.open -= 1
        if self.idle:
            reader, writer, _ = self.idle.pop()
        elif self.open >= CONNECTIONS_MAX:
            return "no connection", False
        else:
            self.open += 1
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port)
            except OSError as error:
                self.open -= 1
                return type(error).__name__, False
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b"transfer-encoding: chunked" in head:
                await reader.readuntil(b"\r\n0\r\n\r\n")
            else:
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        except (OSError, asyncio.IncompleteReadError) as error:
            self.open -= 1
            writer.close()
            return type(error).__name__, False
        if b"connection: close" in head:
            self.open -= 1
            writer.close()
        else:
            self.idle.append((reader, writer, time.monotonic()))
        return int(head.split(b" ", 2)[1]), b"\r\nretry-after:" in head

    async def count_one(self, counts):
        kind, request = self.next_request()
        status, retries = await self.send(request)
        counts[kind, status, retries] += 1

    async def closed(self, seconds):
        """Responses by class and status of clients that wait for each response."""
        counts, end = collections.Counter(), time.monotonic() + seconds

        async def client():
            while time.monotonic() < end:
                await self.count_one(counts)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return counts

    async def open_loop(self, rate, seconds):
        """The same at a fixed rate of requests."""
        counts, began, tasks = collections.Counter(), time.monotonic(), set()
        for number in range(int(rate * seconds)):
            wait = began + number / rate - time.monotonic()
            if wait > 0 or number % 50 == 0:
                await asyncio.sleep(max(wait, 0))
            task = asyncio.create_task(self.count_one(counts))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        late = time.monotonic() - began - seconds
        await asyncio.gather(*tasks)
        return counts, late


def succeeded(counts):
    return sum(count for (_, status, _), count in counts.items() if status in SUCCESS)


def summary(counts):
    """`class status=count`, without the classes that only succeeded."""
    failed = [f"{kind} {status}={count}" for (kind, status, _), count in sorted(counts.items(), key=str) if status not in SUCCESS]
    return f"{succeeded(counts)} succeeded" + "".join(f", {text}" for text in failed)


class Overload:
    def __init__(self, campaign, server, insights):
        self.campaign, self.server = campaign, server
        self.traffic = Traffic(server.url, insights, campaign.random("traffic"))

    def run(self, minutes):
        self.calm = percentile([taken for _, taken, _ in sample_evaluations(self.server.url, 3)], 0.5)
        asyncio.run(self.phases(minutes))

    async def phases(self, minutes):
        await self.traffic.closed(WARM_SECONDS)
        counts = await self.traffic.closed(CAPACITY_SECONDS)
        self.capacity = succeeded(counts) / CAPACITY_SECONDS
        print(f"capacity: {self.capacity:.0f} requests a second by {CLIENTS} clients ({summary(counts)}); evaluation alone p50 {self.calm:.1f} ms", flush=True)
        await self.steady(minutes * 60)
        await self.overload()
        self.recover()

    async def measured(self, share, seconds):
        """Counts, samples of evaluations, and memory, under a share of the capacity."""
        memory, evaluations = Memory(self.server.process), Evaluations(self.server.url)
        counts, late = await self.traffic.open_loop(share * self.capacity, seconds)
        samples, memory = evaluations.end(), memory.end()
        taken = [milliseconds for _, milliseconds, _ in samples]
        print(f"{share:.0%} for {seconds:.0f} s: {summary(counts)}; evaluation p50 {percentile(taken, 0.5):.1f} ms, p99 {percentile(taken, 0.99):.1f} ms; "
              f"memory at most {max(memory):.0f} MiB; the last request was sent {late:.1f} s late", flush=True)
        failed = collections.Counter(status for _, _, status in samples if status != 200)
        self.campaign.expect(not failed, f"evaluations at {share:.0%}: {dict(failed)}")
        return counts, samples, memory

    async def steady(self, seconds):
        counts, samples, memory = await self.measured(STEADY, seconds)
        failed = {str(key): count for key, count in counts.items() if key[1] not in SUCCESS}
        self.campaign.expect(not failed, f"failures at {STEADY:.0%}: {failed}")
        fifth = seconds / 5
        early, late = ([taken for at, taken, _ in samples if part * fifth <= at < (part + 1) * fifth] for part in (1, 4))
        self.steady_p99 = percentile([taken for _, taken, _ in samples], 0.99)
        early_p99, late_p99 = percentile(early, 0.99), percentile(late, 0.99)
        self.campaign.expect(late_p99 <= FLAT * early_p99 + NOISE_MILLISECONDS, f"p99 of evaluations rose from {early_p99:.1f} to {late_p99:.1f} ms")
        size = len(memory) // 5
        early_memory, self.steady_memory = max(memory[size:2 * size]), max(memory[-size:])
        print(f"second and last fifth: p99 {early_p99:.1f} and {late_p99:.1f} ms, memory {early_memory:.0f} and {self.steady_memory:.0f} MiB", flush=True)
        self.campaign.expect(self.steady_memory <= FLAT * early_memory, f"memory rose from {early_memory:.0f} to {self.steady_memory:.0f} MiB")

    async def overload(self):
        counts, samples, memory = await self.measured(OVERLOAD, OVERLOAD_SECONDS)
        refused = sum(count for (_, status, _), count in counts.items() if status == 503)
        self.campaign.expect(refused > 0, "nothing was refused: the load is not above the capacity")
        others = {str(key): count for key, count in counts.items() if key[1] not in SUCCESS and key[1:] != (503, True)}
        self.campaign.expect(not others, f"responses above the capacity that are neither success nor 503 with Retry-After: {others}")
        p99 = percentile([taken for _, taken, _ in samples], 0.99)
        self.campaign.expect(p99 <= 2 * self.steady_p99 + NOISE_MILLISECONDS, f"p99 of evaluations is {p99:.1f} ms, at {STEADY:.0%} {self.steady_p99:.1f} ms")
        self.campaign.expect(max(memory) <= 2 * self.steady_memory, f"memory rose from {self.steady_memory:.0f} to {max(memory):.0f} MiB")

    def recover(self):
        seconds = seconds_until_calm(self.server.url, 2 * self.calm + NOISE_MILLISECONDS, 60)
        print(f"at rest {seconds:.1f} s after the load", flush=True)
        self.campaign.expect(seconds <= RECOVERY_SECONDS, f"evaluations are slow {seconds:.1f} s after the load")


def main():
    campaign = Campaign(__doc__, 1, minutes=(1.0, "minutes at 70 %% of the capacity, 1 by default"))
    server, insights = start_filled(campaign)
    overload = Overload(campaign, server, insights)
    overload.run(campaign.options.minutes)
    server.stop()
    campaign.finish(f"{overload.traffic.sent} requests")


if __name__ == "__main__":
    main()
