// @summary What an order costs
const PRICES = { A: 12.5, B: 3, C: 0.75 }

export const handler = event => {
  const { items, currency = 'EUR' } = JSON.parse(event.body)
  const lines = items.map(({ sku, count }) => ({ sku, count, price: PRICES[sku[0]] * count }))
  const total = lines.reduce((sum, line) => sum + line.price, 0)
  return { status: 201, headers: { 'content-type': 'application/json' }, body: JSON.stringify({ currency, lines, total }) }
}
