-- One and the same POST: its body is a file, its content type the second argument.
function init(args)
  local file = io.open(args[1], "rb")
  wrk.body = file:read("*a")
  file:close()
  wrk.method = "POST"
  wrk.headers["Content-Type"] = args[2]
  whole = wrk.format()
end

function request()
  return whole
end
