-- Clients whose bodies have little in common: none, text and bytes of 1 KiB to 300 KiB, with other queries, headers and cookies
-- each. The argument is the path.
local COUNT = 101
local SIZES = { 0, 1024, 20 * 1024, 64 * 1024, 300 * 1024 }
local requests = {}
local next = 0

function init(args)
  math.randomseed(7)
  for i = 1, COUNT do
    local headers = {
      ["Host"] = "api" .. (i % 3) .. ".example.com",
      ["User-Agent"] = "client/" .. (i % 41) .. ".0 (system " .. (i % 7) .. ")",
      ["Cookie"] = "sid=" .. math.random(1e9) .. "; theme=" .. (i % 2),
      ["X-Client-Trace"] = tostring(math.random(1e9)),
    }
    local size = SIZES[i % #SIZES + 1]
    local body = nil
    if i % 2 == 0 then
      headers["Content-Type"] = "application/octet-stream"
      body = "\255" .. string.rep(string.char(i % 256, 0, 200), math.floor(size / 3))
    elseif size > 0 then
      headers["Content-Type"] = "application/json"
      body = '{"text":"' .. string.rep("x", size) .. '"}'
    end
    requests[i] = wrk.format("POST", args[1] .. "?page=" .. i, headers, body)
  end
end

function request()
  next = next % COUNT + 1
  return requests[next]
end
