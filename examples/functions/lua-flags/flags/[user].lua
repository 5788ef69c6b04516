-- GET /flags/:user: every flag for one user; the same user always gets the same answer
local flags = require("_flags")

-- A small stable hash (djb2) that puts a user into one of 100 buckets.
local function bucket(text)
  local hash = 5381
  for i = 1, #text do
    hash = (hash * 33 + text:byte(i)) % 4294967296
  end
  return hash % 100
end

local function is_on(name, flag, user)
  for _, listed in ipairs(flag.users or {}) do
    if listed == user then
      return true
    end
  end
  return bucket(name .. ":" .. user) < flag.percent
end

function handler(event, params)
  local answer = {}
  for name, flag in pairs(flags) do
    answer[name] = is_on(name, flag, params.user)
  end
  return { user = params.user, flags = answer }
end
