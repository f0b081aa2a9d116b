-- Sends prepared requests in order, repeatedly. LOAD_FILE contains them, each as its length in bytes, a line feed and
-- its bytes; with LOAD_STOP the load ends after that many responses, and prints the line "enough" on standard error.
local requests, at, responses = {}, 0, 0
local stop = tonumber(os.getenv("LOAD_STOP") or "")

function init()
  local file = assert(io.open(os.getenv("LOAD_FILE"), "rb"))
  for line in file:lines() do
    requests[#requests + 1] = file:read(tonumber(line))
  end
  file:close()
end

function request()
  at = at % #requests + 1
  return requests[at]
end

if stop then
  function response()
    responses = responses + 1
    if responses == stop then
      io.stderr:write("enough\n")
      io.stderr:flush()
      wrk.thread:stop()
    end
  end
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format("result %d %d %d %d %f %f\n", summary.requests, summary.duration, e.status,
    e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99)))
end
