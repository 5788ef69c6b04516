// GET /: where to go from here (Node)
export function handler() {
  return {
    shop: 'five languages, one API',
    try: ['/products', '/products/2', '/shipping?kg=3', 'POST /invoice', '/label/Kim'],
  }
}
