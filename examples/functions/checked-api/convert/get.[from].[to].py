# @summary Converts an amount
RATES = {"EUR": 1.0, "USD": 1.1, "JPY": 160.0}


def handler(event):
    params, query = event["params"], event["query"]
    amount = float(query["amount"])
    result = amount / RATES[params["from"]] * RATES[params["to"]]
    return {"from": params["from"], "to": params["to"], "amount": amount, "result": result}
