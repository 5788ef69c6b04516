-- GET /shipping?kg=3 (Lua)
function handler(event)
  local kg = tonumber(event.query.kg)
  if not kg or kg <= 0 then
    return { status = 400, body = { error = "kg must be a number above 0" } }
  end
  return { kg = kg, cents = 490 + math.ceil(kg) * 120 }
end
