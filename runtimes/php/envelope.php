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
        if (\strlen($header) > Kind::LIMITS[Kind::REPLY][0] - 1024) {
            throw new ContractError('status and headers are larger than 512 KiB');
        }
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

    // The body of the call that runs, when it is no text: base64 that comes back as it was given is not decoded.
    private string $givenText = '';
    private string $givenBytes = '';

    // The last envelope's header: handlers mostly answer with the same status and headers.
    private mixed $lastHeaders = null;
    private int $lastStatus = 0;
    private string $lastType = '';
    private string $lastText = '';

    /**
     * @param string|null $text `body_base64` of the call's event
     * @param string $bytes what it stands for
     */
    public function remember(?string $text, string $bytes): void
    {
        $this->givenText = $text ?? '';
        $this->givenBytes = $text === null ? '' : $bytes;
    }

    /** The call is over: what is long goes before the next one comes. */
    public function forget(): void
    {
        $this->givenText = $this->givenBytes = '';
    }

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
            $value = self::unwrap($value);
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
            || \array_key_exists('proxy', $value)
            || \array_key_exists('body_base64', $value)
            || (\array_key_exists('headers', $value) && \array_key_exists('body', $value));
    }

    /** @param array<mixed> $envelope */
    private function fromEnvelope(array $envelope): Reply
    {
        if (isset($envelope['proxy'])) {
            return $this->fromProxy($envelope['proxy']);
        }
        $status = 200;
        if (\array_key_exists('status', $envelope) || \array_key_exists('statusCode', $envelope)) {
            $status = \array_key_exists('status', $envelope) ? $envelope['status'] : $envelope['statusCode'];
            if (\is_float($status) && $status === \floor($status) && \abs($status) < 1000) {
                $status = (int) $status;
            }
            if (!\is_int($status) || $status < 100 || $status > 599) {
                throw new ContractError('status must be an integer from 100 to 599, got ' . self::describe($status));
            }
        }
        $bytes = $this->takeBase64($envelope);
        if ($bytes !== null) {
            return new Reply($this->headerText($status, $envelope['headers'] ?? [], self::BYTES), $bytes);
        }
        $body = $envelope['body'] ?? null;
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
        $text = self::toJson($body);
        return new Reply($this->headerText($status, $envelope['headers'] ?? [], self::JSON), $text);
    }

    /** An upstream request asked for by the handler: its body travels as the frame's. */
    private function fromProxy(mixed $proxy): Reply
    {
        $proxy = self::toArray($proxy);
        if (!\is_array($proxy) || ($proxy !== [] && self::isList($proxy))) {
            throw new ContractError('proxy must be an object, got ' . self::describe($proxy));
        }
        $headers = self::toArray($proxy['headers'] ?? []);
        $bytes = $this->takeBase64($proxy);
        $body = $proxy['body'] ?? null;
        if ($bytes === null && $body !== null && !\is_string($body)) {
            $bytes = self::toJson($body);
            if (\is_array($headers) && !self::hasType($headers)) {
                $headers['content-type'] = self::JSON;
            }
        }
        unset($proxy['body'], $proxy['body_base64'], $proxy['is_base64'], $proxy['isBase64Encoded']);
        $proxy['headers'] = (object) self::checkHeaders($headers);
        $body = $bytes ?? $body ?? '';
        return new Reply('{"proxy":' . self::toJson((object) $proxy) . '}', $body);
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
        $checked = self::checkHeaders(self::toArray($headers));
        if ($type !== '' && !self::hasType($checked)) {
            $checked['content-type'] = $type;
        }
        $text = self::toJson(['status' => $status, 'headers' => (object) $checked]);
        $steady = \is_array($given) ? self::toSteady($given) : null;
        if ($steady !== null) {
            $this->lastHeaders = $steady;
            $this->lastStatus = $status;
            $this->lastType = $type;
            $this->lastText = $text;
        }
        return $text;
    }

    /**
     * Headers as they are now: a reference among them may stand for something else in the next call, and an object may say something else.
     *
     * @param array<mixed> $headers
     * @return array<mixed>|null null where an object is among them
     */
    private static function toSteady(array $headers): ?array
    {
        $steady = [];
        foreach ($headers as $name => $value) {
            $value = \is_array($value) ? self::toSteady($value) : $value;
            if (\is_object($value) || ($value === null && $headers[$name] !== null)) {
                return null;
            }
            $steady[$name] = $value;
        }
        return $steady;
    }

    /** @return array<string, string|list<string>> */
    private static function checkHeaders(mixed $headers): array
    {
        if (!\is_array($headers)) {
            throw new ContractError('headers must be an object, got ' . self::describe($headers));
        }
        if ($headers !== [] && self::isList($headers)) {
            throw new ContractError('headers must be an object, got ' . self::describe($headers));
        }
        $checked = [];
        foreach ($headers as $name => $value) {
            $name = (string) $name;
            if (\preg_match('/^[!#$%&\'*+\-.^_`|~0-9A-Za-z]+$/D', $name) !== 1) {
                throw new ContractError('header name ' . self::quote($name) . ' is not allowed in HTTP');
            }
            if (\is_array($value)) {
                $checked[$name] = [];
                foreach ($value as $item) {
                    $checked[$name][] = self::toHeaderText($name, $item);
                }
            } elseif ($value !== null) {
                $checked[$name] = self::toHeaderText($name, $value);
            }
        }
        return $checked;
    }

    /** @param array<mixed> $headers */
    private static function hasType(array $headers): bool
    {
        foreach ($headers as $name => $_) {
            if (\strcasecmp((string) $name, 'content-type') === 0) {
                return true;
            }
        }
        return false;
    }

    private static function toHeaderText(string $name, mixed $value): string
    {
        if (\is_bool($value)) {
            return $value ? 'true' : 'false';
        }
        if (!\is_string($value) && !\is_int($value) && !\is_float($value) && !$value instanceof \Stringable) {
            throw new ContractError(
                "header \"$name\" must be a string, a number, a boolean or a list of them, got " . self::describe($value),
            );
        }
        $text = (string) $value;
        // A line break would let input of a client start a header, or a whole answer, of its own.
        $bad = \preg_match('/[^\t\x20-\x7e\x{80}-\x{ff}]/u', $text, $found);
        if ($bad !== 0) {
            $what = $bad === false
                ? 'bytes that are not UTF-8'
                : 'the character U+' . \strtoupper(\str_pad(\dechex(self::codePoint($found[0])), 4, '0', \STR_PAD_LEFT));
            throw new ContractError("header \"$name\" holds $what, which HTTP does not allow there");
        }
        return $text;
    }

    /**
     * The bytes of a body given as base64, null when it is not given that way.
     *
     * @param array<mixed> $envelope
     */
    private function takeBase64(array $envelope): ?string
    {
        $flag = $envelope['is_base64'] ?? false;
        if (!\is_bool($flag)) {
            throw new ContractError('is_base64 must be true or false, got ' . self::describe($flag));
        }
        $body = $envelope['body'] ?? null;
        if (isset($envelope['body_base64'])) {
            return $flag || $body === null ? $this->decodeBase64('body_base64', $envelope['body_base64']) : null;
        }
        if ($flag) {
            throw new ContractError('is_base64 is true, but body_base64 is missing');
        }
        $isAlias = ($envelope['isBase64Encoded'] ?? false) === true;
        return $isAlias && $body !== null ? $this->decodeBase64('body', $body) : null;
    }

    private function decodeBase64(string $field, mixed $text): string
    {
        if ($text === $this->givenText && $text !== '') {
            return $this->givenBytes;
        }
        // PHP itself would pass over blanks and line breaks.
        $isPlain = \is_string($text) && \strcspn($text, " \t\r\n\v\f\0") === \strlen($text);
        $bytes = $isPlain ? \base64_decode($text, true) : false;
        if ($bytes === false) {
            throw new ContractError("$field must be base64 text, got " . self::describe($text));
        }
        return $bytes;
    }

    /** A returned object: what JsonSerializable says, an envelope of its public properties, or itself as a JSON body. */
    private static function unwrap(object $value): mixed
    {
        if ($value instanceof \JsonSerializable) {
            $value = $value->jsonSerialize();
            if (!\is_object($value)) {
                return $value;
            }
        }
        $properties = \get_object_vars($value);
        return self::isEnvelope($properties) ? $properties : $value;
    }

    /** An object in the place of an array with names: its public properties. */
    private static function toArray(mixed $value): mixed
    {
        if ($value instanceof \JsonSerializable) {
            $value = $value->jsonSerialize();
        }
        return \is_object($value) ? \get_object_vars($value) : $value;
    }

    private static function toJson(mixed $value): string
    {
        if ($value instanceof \Closure) {
            // As JSON it would be {}, which hides the mistake.
            throw new ContractError('the answer is a Closure, which cannot be sent');
        }
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

    /** A value and its type for a message, in the words of every runtime: `"200" (string)`, `an array of 2 items`. */
    public static function describe(mixed $value): string
    {
        if ($value === null) {
            return 'null';
        }
        if (\is_array($value) && ($value === [] || self::isList($value))) {
            return 'an array of ' . \count($value) . (\count($value) === 1 ? ' item' : ' items');
        }
        if (\is_array($value) || $value instanceof \stdClass) {
            return 'an object';
        }
        if (!\is_scalar($value)) {
            return 'a value of type ' . \get_debug_type($value);
        }
        if (\is_string($value)) {
            return self::quote(\preg_match('/^.{60}(?=.)/us', $value, $start) === 1 ? $start[0] . '...' : $value) . ' (string)';
        }
        if (\is_bool($value)) {
            return ($value ? 'true' : 'false') . ' (boolean)';
        }
        $text = \is_int($value) || \is_finite($value) ? \json_encode($value) : (\is_nan($value) ? 'NaN' : 'Infinity');
        return ($value === -\INF ? '-' : '') . $text . ' (number)';
    }

    private static function quote(string $text): string
    {
        return (string) \json_encode($text, JSON_FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE);
    }

    /** @param string $char one character of UTF-8 */
    private static function codePoint(string $char): int
    {
        $bytes = \array_values((array) \unpack('C*', $char));
        $code = $bytes[0] < 0x80 ? $bytes[0] : $bytes[0] & (0xff >> (\count($bytes) + 1));
        for ($i = 1; $i < \count($bytes); $i++) {
            $code = $code << 6 | $bytes[$i] & 0x3f;
        }
        return $code;
    }
}
