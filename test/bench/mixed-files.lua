-- Clients that have little in common ask for files: each connection another file, other headers and cookies each time.
local COUNT = 509
local requests = {}
local next = 0

function init(args)
  local prefix, files = args[1], tonumber(args[2])
  math.randomseed(7)
  local accepted = { "gzip, deflate, br", "gzip", "identity", "br;q=0.9, *;q=0.1" }
  for i = 1, COUNT do
    local headers = {
      ["Host"] = "www" .. (i % 3) .. ".example.com",
      ["User-Agent"] = "client/" .. (i % 41) .. ".0 (system " .. (i % 7) .. ")",
      ["Accept"] = "*/*",
      ["Accept-Encoding"] = accepted[i % 4 + 1],
      ["Cookie"] = "sid=" .. math.random(1e9) .. "; theme=" .. (i % 2),
    }
    requests[i] = wrk.format("GET", prefix .. "/" .. math.random(0, files - 1) .. ".bin", headers)
  end
end

function request()
  next = next % COUNT + 1
  return requests[next]
end
