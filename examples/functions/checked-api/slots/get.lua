-- @summary Free times of a day
function handler(event)
  local slots = {}
  for hour = tonumber(event.query.from or "9"), 17 do
    slots[#slots + 1] = string.format("%sT%02d:00:00Z", event.query.day, hour)
  end
  return { day = event.query.day, slots = slots }
end
