-- Clients that have little in common: different paths, queries, headers and cookies, one request in five with a body.
-- Each connection sends them in another order, so that none repeats its last one.
local COUNT = 509
local requests = {}
local next = 0

function init(args)
  local prefix = args[1] or ""
  math.randomseed(7)
  local languages = { "en", "de-DE,de;q=0.9", "pt-BR", "ja", "fr;q=0.8" }
  for i = 1, COUNT do
    local headers = {
      ["Host"] = "api" .. (i % 3) .. ".example.com",
      ["User-Agent"] = "client/" .. (i % 41) .. ".0 (system " .. (i % 7) .. ")",
      ["Accept"] = "application/json",
      ["Accept-Language"] = languages[i % 5 + 1],
      ["Cookie"] = "sid=" .. math.random(1e9) .. "; theme=" .. (i % 2),
      ["X-Client-Trace"] = tostring(math.random(1e9)),
    }
    local method, body = "GET", nil
    if i % 5 == 0 then
      method = "POST"
      body = '{"id":' .. i .. ',"name":"' .. string.rep("n", i % 60) .. '"}'
      headers["Content-Type"] = "application/json"
    end
    local path = prefix .. "/users/" .. math.random(1e6) .. "?page=" .. (i % 17) .. "&sort=name"
    requests[i] = wrk.format(method, path, headers, body)
  end
end

function request()
  next = next % COUNT + 1
  return requests[next]
end
