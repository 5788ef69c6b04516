<?php
/** What a handler returned, as a reply. Pages: invocation/response, runtimes/php. */

declare(strict_types=1);

namespace Fngw;

/** The return value breaks the response contract; the client gets 502 with this message. */
final class ContractError extends \RuntimeException
{
}

/** A reply: the header text of its frame, the body, or the generator that makes the body. */
final class Reply
{
    public string $header;
    public string $body;
    public ?\Generator $stream;

    public function __construct(string $header, string $body, ?\Generator $stream = null)
    {
        $this->header = $header;
        $this->body = $body;
        $this->stream = $stream;
    }
}

final class EnvelopeMaker
{
    private const JSON = 'application/json';
    private const TEXT = 'text/plain; charset=utf-8';
    private const BYTES = 'application/octet-stream';
    private const JSON_OK = '{"status":200,"headers":{"content-type":"application/json"}}';
    private const BYTES_OK = '{"status":200,"headers":{"content-type":"application/octet-stream"}}';
    private const TEXT_OK = '{"status":200,"headers":{"content-type":"text/plain; charset=utf-8"}}';
    private const EMPTY_OK = '{"status":200,"headers":{}}';

    // The last envelope's header: handlers mostly answer with the same status and headers.
    private mixed $lastHeaders = null;
    private int $lastStatus = 0;
    private string $lastType = '';
    private string $lastText = '';

    /**
     * @param mixed $value a handler's return value
     * @throws ContractError
     * @throws \Throwable what `jsonSerialize` of the handler's own classes throws
     */
    public function make(mixed $value): Reply
    {
        if (\is_object($value)) {
            if ($value instanceof \Generator) {
                return new Reply(self::TEXT_OK, '', $value);
            }
            $value = self::toPlain($value);
        }
        if (\is_array($value)) {
            return self::isEnvelope($value)
                ? $this->fromEnvelope($value)
                : new Reply(self::JSON_OK, self::toJson($value));
        }
        if ($value === null) {
            return new Reply(self::EMPTY_OK, '');
        }
        if (\is_string($value)) {
            $text = \json_encode($value, JSON_FLAGS);
            return $text === false ? new Reply(self::BYTES_OK, $value) : new Reply(self::JSON_OK, $text);
        }
        return new Reply(self::JSON_OK, self::toJson($value));
    }

    /** @param array<mixed> $value */
    private static function isEnvelope(array $value): bool
    {
        return \array_key_exists('status', $value)
            || \array_key_exists('statusCode', $value)
            || isset($value['proxy'])
            || \array_key_exists('body_base64', $value)
            || (\array_key_exists('headers', $value) && \array_key_exists('body', $value));
    }

    /** @param array<mixed> $envelope */
    private function fromEnvelope(array $envelope): Reply
    {
        if (isset($envelope['proxy'])) {
            return self::fromProxy($envelope['proxy']);
        }
        $status = 200;
        if (\array_key_exists('status', $envelope) || \array_key_exists('statusCode', $envelope)) {
            $status = \array_key_exists('status', $envelope) ? $envelope['status'] : $envelope['statusCode'];
            if (!\is_int($status) || $status < 100 || $status > 599) {
                throw new ContractError('status must be an integer from 100 to 599, got ' . self::describe($status));
            }
        }
        $body = $envelope['body'] ?? null;
        if (
            isset($envelope['body_base64'])
            || ($envelope['is_base64'] ?? false) === true
            || ($envelope['isBase64Encoded'] ?? false) === true
        ) {
            $field = isset($envelope['body_base64']) ? 'body_base64' : 'body';
            $bytes = self::decodeBase64($field, $envelope[$field] ?? '');
            return new Reply($this->headerText($status, $envelope['headers'] ?? [], self::BYTES), $bytes);
        }
        if (\is_string($body)) {
            $type = \preg_match('//u', $body) === 1 ? self::TEXT : self::BYTES;
            return new Reply($this->headerText($status, $envelope['headers'] ?? [], $type), $body);
        }
        if ($body === null) {
            return new Reply($this->headerText($status, $envelope['headers'] ?? [], ''), '');
        }
        if ($body instanceof \Generator) {
            return new Reply($this->headerText($status, $envelope['headers'] ?? [], self::TEXT), '', $body);
        }
        if (\is_object($body)) {
            $body = self::toPlain($body);
        }
        return new Reply($this->headerText($status, $envelope['headers'] ?? [], self::JSON), self::toJson($body));
    }

    /** An upstream request asked for by the handler: its body travels as the frame's. */
    private static function fromProxy(mixed $proxy): Reply
    {
        if (\is_object($proxy)) {
            $proxy = self::toPlain($proxy);
        }
        if (!\is_array($proxy) || ($proxy !== [] && self::isList($proxy))) {
            throw new ContractError('proxy must be an array of names and values, got ' . self::describe($proxy));
        }
        $body = $proxy['body'] ?? null;
        if (isset($proxy['body_base64'])) {
            $body = self::decodeBase64('proxy.body_base64', $proxy['body_base64']);
        } elseif (($proxy['is_base64'] ?? false) === true) {
            $body = self::decodeBase64('proxy.body', $body ?? '');
        } elseif ($body !== null && !\is_string($body)) {
            $body = self::toJson($body);
        }
        unset($proxy['body'], $proxy['body_base64'], $proxy['is_base64']);
        if (isset($proxy['headers']) && \is_array($proxy['headers'])) {
            $proxy['headers'] = (object) $proxy['headers'];
        }
        return new Reply('{"proxy":' . self::toJson((object) $proxy) . '}', $body ?? '');
    }

    /**
     * @param string $type content type when the handler sets none; '' sets none
     * @return string JSON text of the `reply` header
     */
    private function headerText(int $status, mixed $headers, string $type): string
    {
        if ($headers === $this->lastHeaders && $status === $this->lastStatus && $type === $this->lastType) {
            return $this->lastText;
        }
        $given = $headers;
        $default = $type;
        if (\is_object($headers)) {
            $headers = self::toPlain($headers);
        }
        if ($headers === null) {
            $headers = [];
        }
        if (!\is_array($headers)) {
            throw new ContractError('headers must be an array of names and values, got ' . self::describe($headers));
        }
        $checked = [];
        foreach ($headers as $name => $value) {
            $name = (string) $name;
            if (\preg_match('/^[!#$%&\'*+\-.^_`|~0-9A-Za-z]+$/D', $name) !== 1) {
                throw new ContractError('header name ' . self::describe($name) . ' is not allowed');
            }
            $checked[$name] = self::toHeaderValue($name, $value);
            if (\strcasecmp($name, 'content-type') === 0) {
                $default = '';
            }
        }
        if ($default !== '') {
            $checked['content-type'] = $default;
        }
        $text = self::toJson(['status' => $status, 'headers' => (object) $checked]);
        // Objects may change between calls, arrays are compared by value.
        if (\is_array($given)) {
            $this->lastHeaders = $given;
            $this->lastStatus = $status;
            $this->lastType = $type;
            $this->lastText = $text;
        }
        return $text;
    }

    /** @return string|list<string> */
    private static function toHeaderValue(string $name, mixed $value): string|array
    {
        if (\is_array($value)) {
            $list = [];
            foreach ($value as $item) {
                $list[] = (string) self::toHeaderItem($name, $item);
            }
            return $list;
        }
        return self::toHeaderItem($name, $value);
    }

    private static function toHeaderItem(string $name, mixed $value): string
    {
        if (\is_bool($value)) {
            return $value ? 'true' : 'false';
        }
        if (!\is_string($value) && !\is_int($value) && !\is_float($value) && !$value instanceof \Stringable) {
            throw new ContractError(
                "header $name must be a string, a number or a list of them, got " . self::describe($value),
            );
        }
        $text = (string) $value;
        // A line break would let input of a client start a header, or a whole answer, of its own.
        if (\preg_match('/[\x00-\x08\x0a-\x1f\x7f]/', $text) === 1) {
            throw new ContractError("header $name holds a control character: " . self::describe($text));
        }
        return $text;
    }

    private static function decodeBase64(string $field, mixed $text): string
    {
        $bytes = \is_string($text) ? \base64_decode($text, true) : false;
        if ($bytes === false) {
            throw new ContractError("$field must be base64 text, got " . self::describe($text));
        }
        return $bytes;
    }

    /** Objects follow JsonSerializable, else their public properties count. */
    private static function toPlain(object $value): mixed
    {
        if ($value instanceof \JsonSerializable) {
            $plain = $value->jsonSerialize();
            return $plain instanceof \stdClass ? self::toPlain($plain) : $plain;
        }
        // Other kinds have no properties to show, or JSON has rules of its own for them (enums).
        if ($value instanceof \Closure) {
            throw new ContractError('the answer is a Closure, which cannot be sent');
        }
        $plain = \get_object_vars($value);
        return self::isEnvelope($plain) ? $plain : $value;
    }

    private static function toJson(mixed $value): string
    {
        $text = \json_encode($value, JSON_FLAGS);
        if ($text === false) {
            throw new ContractError('the answer cannot be written as JSON: ' . \lcfirst(\json_last_error_msg()));
        }
        return $text;
    }

    /** @param array<mixed> $value */
    private static function isList(array $value): bool
    {
        return \array_keys($value) === \range(0, \count($value) - 1);
    }

    /** A value for a message: its text, cut, and its type. */
    private static function describe(mixed $value): string
    {
        if (!\is_scalar($value)) {
            return \get_debug_type($value);
        }
        $text = \is_float($value)
            ? \var_export($value, true)
            : (string) \json_encode($value, JSON_FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE);
        if (\preg_match('/^.{80}/us', $text, $start) === 1) {
            $text = $start[0] . '...';
        }
        return $text . ' (' . \get_debug_type($value) . ')';
    }
}
