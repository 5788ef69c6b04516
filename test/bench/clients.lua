-- What scripts of clients that have little in common share. Used as
--   local clients = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "clients.lua")
local clients = {}

-- Headers of the client number i: other hosts, programs and cookies, with those of `more`.
function clients.headers(i, more)
  local headers = {
    ["Host"] = "api" .. (i % 3) .. ".example.com",
    ["User-Agent"] = "client/" .. (i % 41) .. ".0 (system " .. (i % 7) .. ")",
    ["Cookie"] = "sid=" .. math.random(1e9) .. "; theme=" .. (i % 2),
  }
  for name, value in pairs(more) do headers[name] = value end
  return headers
end

-- Makes `count` requests by make(i), the same ones in each run, and sends them in turn. One wrk connection follows another, so that none
-- repeats its last one.
function clients.send(count, make)
  math.randomseed(7)
  local requests = {}
  for i = 1, count do requests[i] = make(i) end
  local next = 0
  function request()
    next = next % count + 1
    return requests[next]
  end
end

return clients
