-- Clients whose bodies have little in common: none, text and bytes of 1 KiB to 300 KiB, with other queries, headers and cookies
-- each. The argument is the path.
local clients = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "clients.lua")
local SIZES = { 0, 1024, 20 * 1024, 64 * 1024, 300 * 1024 }

function init(args)
  clients.send(101, function(i)
    local headers = clients.headers(i, { ["X-Client-Trace"] = tostring(math.random(1e9)) })
    local size = SIZES[i % #SIZES + 1]
    local body = nil
    if i % 2 == 0 then
      headers["Content-Type"] = "application/octet-stream"
      body = "\255" .. string.rep(string.char(i % 256, 0, 200), math.floor(size / 3))
    elseif size > 0 then
      headers["Content-Type"] = "application/json"
      body = '{"text":"' .. string.rep("x", size) .. '"}'
    end
    return wrk.format("POST", args[1] .. "?page=" .. i, headers, body)
  end)
end
