--- `require("fngw_test").gateway`: the gateway that `fngw test` runs, for tests of functions. Page: bin/test.
local send = ...
local cjson = require("cjson")

local function escape(value)
  return (tostring(value):gsub("[^%w%-._~]", function(char) return ("%%%02X"):format(char:byte()) end))
end

local function to_query(query)
  local fields = {}
  for name, value in pairs(query) do
    for _, item in ipairs(type(value) == "table" and value or { value }) do
      fields[#fields + 1] = escape(name) .. "=" .. escape(item)
    end
  end
  return table.concat(fields, "&")
end

local Response = {}
Response.__index = Response

function Response:text() return self.body end

function Response:json() return cjson.decode(self.body) end

local gateway = {}

--- Sends a request to the functions. A body that is not a string is sent as JSON.
-- `request` may have `method`, `headers`, `query` and `body`.
function gateway.inject(url, request)
  local given = request or {}
  if given.query then url = url .. (url:find("?", 1, true) and "&" or "?") .. to_query(given.query) end
  local headers, body = {}, given.body
  for name, value in pairs(given.headers or {}) do headers[name:lower()] = value end
  if body ~= nil and type(body) ~= "string" then
    body = cjson.encode(body)
    headers["content-type"] = headers["content-type"] or "application/json"
  end
  local head, content = send(cjson.encode({ method = given.method or "GET", url = url, headers = headers }), body)
  local response = cjson.decode(head)
  response.body = content
  return setmetatable(response, Response)
end

return { gateway = gateway }
