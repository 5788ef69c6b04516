const form = document.querySelector('form')
const output = document.querySelector('output')
const status = document.querySelector('[role=status]')

/** The events of a response. EventSource cannot send a body, so the page reads the stream itself. */
async function* readEvents(response) {
  let text = ''
  const decoder = new TextDecoder()
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read()
    if (done) return
    text += decoder.decode(value, { stream: true })
    const events = text.split('\n\n')
    text = events.pop()
    for (const event of events) {
      const [, name, data] = /^event: (.+)\ndata: (.+)$/.exec(event)
      yield { name, data: JSON.parse(data) }
    }
  }
}

async function show(prompt, signal) {
  const response = await fetch('/api/generate', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ prompt }),
    signal,
  })
  if (!response.ok) throw new Error((await response.json()).error)
  for await (const { name, data } of readEvents(response)) {
    if (name === 'token') output.append(data.text)
    else status.textContent = `${data.tokens} tokens`
  }
}

form.addEventListener('submit', async event => {
  event.preventDefault()
  const { prompt, stop } = form.elements
  const controller = new AbortController()
  const submit = form.querySelector('button')
  stop.onclick = () => controller.abort()
  output.textContent = status.textContent = ''
  stop.disabled = false
  submit.disabled = true
  try {
    await show(prompt.value, controller.signal)
  } catch (error) {
    status.textContent = controller.signal.aborted ? 'Stopped' : error.message
  } finally {
    stop.disabled = true
    submit.disabled = false
  }
})
