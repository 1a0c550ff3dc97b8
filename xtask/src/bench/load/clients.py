"""Streaming clients as people write them in Python, driven like peerway's, with what they took.

usage: clients.py KIND URL CONCURRENCY REQUESTS_PER_SLOT TOKENS

KIND is one of
  openai   the openai package: AsyncOpenAI, `async for chunk in stream`
  httpx    httpx: `async for line in response.aiter_lines()`, json.loads of each
  aiohttp  aiohttp: `async for chunk in response.content`, json.loads of each, which is how the
           benchmark scripts that come with vLLM and SGLang read

Every token's time is kept, as those scripts do. Processor time is the process's own, from after the
imports and one warm-up request a slot to the end, so that what the interpreter needs to start does
not count. Prints one JSON object.
"""

import asyncio
import json
import sys
import time

KIND, URL = sys.argv[1], sys.argv[2]
CONCURRENCY, ROUNDS, TOKENS = map(int, sys.argv[3:6])
BODY = {
    "model": "mock",
    "messages": [{"role": "user", "content": "the same few words for every request of this run"}],
    "max_tokens": TOKENS,
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
}

tokens = 0
lags = []


def took(stamp):
    if stamp is not None:
        lags.append(time.monotonic_ns() - stamp)


def read(data, times):
    """One event, as the scripts read it."""
    global tokens
    now = time.perf_counter()
    data = json.loads(data)
    took(data.get("stamp_ns"))
    if choices := data["choices"]:
        if choices[0]["delta"].get("content"):
            times.append(now)
            tokens += 1


async def with_openai():
    import httpx
    import openai

    limits = httpx.Limits(max_connections=CONCURRENCY, max_keepalive_connections=CONCURRENCY)
    client = openai.AsyncOpenAI(
        base_url=URL + "/v1", api_key="none", http_client=httpx.AsyncClient(limits=limits, timeout=None)
    )

    async def request():
        global tokens
        times = []
        stream = await client.chat.completions.create(**BODY)
        async for chunk in stream:
            now = time.perf_counter()
            took(getattr(chunk, "stamp_ns", None))
            if chunk.choices and chunk.choices[0].delta.content:
                times.append(now)
                tokens += 1

    return request, client.close, f"openai {openai.__version__}, httpx {httpx.__version__}"


async def with_httpx():
    import httpx

    limits = httpx.Limits(max_connections=CONCURRENCY, max_keepalive_connections=CONCURRENCY)
    client = httpx.AsyncClient(limits=limits, timeout=None)

    async def request():
        times = []
        async with client.stream("POST", URL + "/v1/chat/completions", json=BODY) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    read(line[6:], times)

    return request, client.aclose, f"httpx {httpx.__version__}"


async def with_aiohttp():
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONCURRENCY), timeout=aiohttp.ClientTimeout(total=None)
    )

    async def request():
        times = []
        async with session.post(URL + "/v1/chat/completions", json=BODY) as response:
            async for chunk in response.content:
                chunk = chunk.strip()
                if not chunk:
                    continue
                chunk = chunk.decode("utf-8").removeprefix("data: ")
                if chunk != "[DONE]":
                    read(chunk, times)

    return request, session.close, f"aiohttp {aiohttp.__version__}"


async def main():
    global tokens
    make = {"openai": with_openai, "httpx": with_httpx, "aiohttp": with_aiohttp}[KIND]
    request, close, version = await make()

    async def slot(rounds):
        for _ in range(rounds):
            await request()

    await asyncio.gather(*(slot(1) for _ in range(CONCURRENCY)))
    tokens = 0
    lags.clear()
    begun, taken = time.perf_counter(), time.process_time_ns()
    await asyncio.gather(*(slot(ROUNDS) for _ in range(CONCURRENCY)))
    taken, wall = time.process_time_ns() - taken, time.perf_counter() - begun
    await close()
    lags.sort()
    lag = {f"p{share}": lags[int(len(lags) * share / 100)] for share in (50, 99)} if lags else None
    out = {"tokens": tokens, "processor_ns": taken, "wall_s": wall, "version": version, "lag_ns": lag}
    print(json.dumps(out))


asyncio.run(main())
