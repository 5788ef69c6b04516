-- Clients that have little in common ask for files: each connection another file, other headers and cookies each time.
local clients = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "clients.lua")
local ACCEPTED = { "gzip, deflate, br", "gzip", "identity", "br;q=0.9, *;q=0.1" }

function init(args)
  local prefix, files = args[1], tonumber(args[2])
  clients.send(509, function(i)
    local headers = clients.headers(i, { ["Accept"] = "*/*", ["Accept-Encoding"] = ACCEPTED[i % 4 + 1] })
    return wrk.format("GET", prefix .. "/" .. math.random(0, files - 1) .. ".bin", headers)
  end)
end
