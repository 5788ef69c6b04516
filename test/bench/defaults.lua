-- 2,000 requests that differ in path, query, cookie and headers; one in five is a post. Argument: the folder of the path.
local clients = dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "clients.lua")

function init(args)
  local prefix = args[1] or ""
  clients.send(2000, function(i)
    local headers = clients.headers(i, { ["Accept"] = "application/json", ["X-Client-Trace"] = tostring(math.random(1e9)) })
    local method, body = "GET", nil
    if i % 5 == 0 then
      method = "POST"
      body = '{"id":' .. i .. ',"name":"' .. string.rep("n", i % 60) .. '"}'
      headers["Content-Type"] = "application/json"
    end
    local path = prefix .. "/" .. math.random(1e6) .. "?page=" .. (i % 17) .. "&sort=name" .. i
    return wrk.format(method, path, headers, body)
  end)
end
