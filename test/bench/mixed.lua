-- Clients that have little in common: different paths, queries, headers and cookies, one request in five with a body.
-- Each connection sends them in another order, so that none repeats its last one.
local clients = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "clients.lua")
local LANGUAGES = { "en", "de-DE,de;q=0.9", "pt-BR", "ja", "fr;q=0.8" }

function init(args)
  local prefix = args[1] or ""
  clients.send(509, function(i)
    local headers = clients.headers(i, {
      ["Accept"] = "application/json",
      ["Accept-Language"] = LANGUAGES[i % 5 + 1],
      ["X-Client-Trace"] = tostring(math.random(1e9)),
    })
    local method, body = "GET", nil
    if i % 5 == 0 then
      method = "POST"
      body = '{"id":' .. i .. ',"name":"' .. string.rep("n", i % 60) .. '"}'
      headers["Content-Type"] = "application/json"
    end
    local path = prefix .. "/users/" .. math.random(1e6) .. "?page=" .. (i % 17) .. "&sort=name"
    return wrk.format(method, path, headers, body)
  end)
end
