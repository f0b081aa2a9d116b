-- Batches of a hundred events for wrk, each with its own uuid, in the form that browsers send (some 460 bytes each).
-- The environment variable TOKEN is the project token.
local names = {"$pageview", "$autocapture", "viewed", "$pageleave", "added_to_cart", "purchased", "search", "login"}
local browsers = {"Chrome", "Safari", "Mobile Safari", "Edge", "Firefox"}
local countries = {"US", "IN", "GB", "DE", "FR", "BR", "CA", "ES"}
local token = os.getenv("TOKEN") or "phc_demo"
local per_batch = 100
local thread_number = 0

function setup(thread)
  thread_number = thread_number + 1
  thread:set("number", thread_number)
end

function init(args)
  math.randomseed(os.time() + number * 7919)
  salt = math.random(0, 2147483647)
  count = 0
  wrk.method = "POST"
  wrk.path = "/batch/"
  wrk.headers["Content-Type"] = "application/json"
end

local function event()
  count = count + 1
  local uuid = string.format("%08x-%04x-4%03x-8%03x-%012x", salt, number, count % 4096, math.floor(count / 4096) % 4096, count)
  return string.format(
    '{"event":"%s","distinct_id":"user_%d","uuid":"%s","timestamp":"%s","properties":{"$browser":"%s",' ..
    '"$current_url":"https://app.example.com/p/%d","$lib":"web","$lib_version":"1.400.0","$os":"Mac OS X",' ..
    '"plan":"pro","amount":%.2f,"$geoip_country_code":"%s","$session_id":"s-%d","$screen_width":1440,"is_new":false}}',
    names[math.random(#names)], math.random(100000), uuid, stamp, browsers[math.random(#browsers)], math.random(2000),
    math.random() * 300, countries[math.random(#countries)], math.random(50000))
end

function request()
  stamp = os.date("!%Y-%m-%dT%H:%M:%S") .. string.format(".%03dZ", count % 1000)
  local events = {}
  for i = 1, per_batch do events[i] = event() end
  return wrk.format(nil, nil, nil, '{"api_key":"' .. token .. '","batch":[' .. table.concat(events, ",") .. "]}")
end

function done(summary, latency)
  local failed = summary.errors.status + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format("events %d, seconds %.2f, events a second %.0f, failed requests %d, ms p50 %.1f p99 %.1f\n",
    summary.requests * per_batch, summary.duration / 1e6, summary.requests * per_batch / (summary.duration / 1e6), failed,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
