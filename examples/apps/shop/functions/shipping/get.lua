-- @summary What shipping costs (Lua)
local BASE_CENTS = { DE = 490, FR = 890, US = 1490 }

function handler(event)
  local kilograms = math.ceil(tonumber(event.query.grams) / 1000)
  return { country = event.query.country, cents = BASE_CENTS[event.query.country] + kilograms * 120 }
end
