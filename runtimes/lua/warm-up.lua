-- What a spare thread runs before it has a function: everything on the way of a first call is then loaded and compiled.
local cjson = require("cjson")

function handler(event, params)
  local name = (event.query.name or params.id or "x"):upper()
  print(name, event.method, #event.headers)
  for key, value in pairs(event.query) do name = name .. key .. tostring(value) end
  local ok = pcall(function() return name:find("^%w+") end)
  if event.query.envelope then
    return { status = 200, headers = { ["content-type"] = "text/plain" }, body = cjson.encode({ name, ok, n = 1 }) }
  end
  return { name = name, list = { 1, 2.5, true }, body = event.body }
end
