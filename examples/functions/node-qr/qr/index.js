// GET /qr?text=...: a QR code as SVG
import qrcode from 'qrcode-generator'

const LONGEST = 1000

export function handler(event) {
  const { text } = event.query
  if (typeof text !== 'string' || text === '' || text.length > LONGEST) {
    return { status: 400, body: { error: `"text" must be a text of 1 to ${LONGEST} characters` } }
  }
  // 0: as small as the text allows; M: a code that lost 15 % of its area can still be read.
  const code = qrcode(0, 'M')
  code.addData(text)
  code.make()
  const headers = { 'Content-Type': 'image/svg+xml' }
  return { status: 200, headers, body: code.createSvgTag({ cellSize: 4, scalable: true }) }
}
