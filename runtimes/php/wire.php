<?php
/**
 * Frames of the wire protocol, for the PHP daemon and its workers. Page: runtime/wire-protocol.
 *
 *   u32 length | u8 kind | u32 id | u32 header length | header: JSON text | body: raw bytes
 */

declare(strict_types=1);

namespace Fngw;

const PROTOCOL_VERSION = 1;

final class Kind
{
    public const HELLO = 1;
    public const READY = 2;
    public const START = 3;
    public const STARTED = 4;
    public const STOP = 5;
    public const EXITED = 6;
    public const LOG = 7;
    public const LOADED = 8;
    public const CALL = 16;
    public const REPLY = 17;
    public const CHUNK = 18;
    public const END = 19;
    public const CANCEL = 20;
    public const ERROR = 21;
    public const MORE = 22;
    public const PING = 32;
    public const PONG = 33;

    /** Most bytes of header and body; to the body of a call a worker adds its function's `max_body_bytes`. */
    public const LIMITS = [
        self::HELLO => [4096, 16],
        self::READY => [262144, 0],
        self::START => [4194304, 0],
        self::STARTED => [4096, 0],
        self::STOP => [4096, 0],
        self::EXITED => [4096, 0],
        self::LOG => [4096, 65536],
        self::LOADED => [262144, 0],
        self::CALL => [1048576, 16777216],
        self::REPLY => [524288, 16777216],
        self::CHUNK => [4096, 262144],
        self::END => [65536, 0],
        self::CANCEL => [4096, 0],
        self::ERROR => [65536, 0],
        self::MORE => [4096, 0],
        self::PING => [4096, 64],
        self::PONG => [4096, 64],
    ];
}

/** Largest frame before a function's `max_body_bytes` is added, bytes. */
const MAX_FRAME_BYTES = 16 * 1024 * 1024;
/** Largest body of one `reply`, bytes; a larger one goes out as chunks. */
const MAX_REPLY_BODY_BYTES = 1024 * 1024;
/** Bytes of a stream that may be under way. */
const STREAM_WINDOW_BYTES = 256 * 1024;
/** Bytes of one chunk: several fit the window, so that the next one is made while the last one is taken. */
const CHUNK_BYTES = 64 * 1024;
/** Bytes asked of a socket or pipe at once. */
const READ_BYTES = 64 * 1024;
/** Bytes from which on a frame's body is gathered by itself, and leaves by itself. */
const LARGE_BYTES = 64 * 1024;
/** Bytes asked of a socket at once for the rest of one: more than a socket holds. */
const LARGE_READ_BYTES = 256 * 1024;

const PREFIX_BYTES = 13;
const FIXED_BYTES = 9;
const JSON_FLAGS = \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE | \JSON_PRESERVE_ZERO_FRACTION;

/** The connection is to be closed. */
final class ProtocolError extends \RuntimeException
{
}

/** @param string $header JSON text, '' for no fields */
function encodeFrame(int $kind, int $id, string $header = '', string $body = ''): string
{
    $headerBytes = \strlen($header);
    return \pack('NCNN', FIXED_BYTES + $headerBytes + \strlen($body), $kind, $id, $headerBytes) . $header . $body;
}

/** The beginning of a frame whose body is sent behind it: to join them would copy the body. */
function encodeHead(int $kind, int $id, string $header, int $bodyBytes): string
{
    $headerBytes = \strlen($header);
    return \pack('NCNN', FIXED_BYTES + $headerBytes + $bodyBytes, $kind, $id, $headerBytes) . $header;
}

/**
 * A frame whose header holds text of any origin: bytes that are no UTF-8 are replaced.
 *
 * @param array<string, mixed> $fields
 */
function encodeFields(int $kind, int $id, array $fields, string $body = ''): string
{
    return encodeFrame($kind, $id, (string) \json_encode($fields, JSON_FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE), $body);
}

/**
 * An `error` without what would make it too large; a message of 4096 bytes always fits.
 *
 * @param array<string, mixed> $fields
 */
function encodeError(int $id, array $fields): string
{
    $frame = encodeFields(Kind::ERROR, $id, $fields);
    foreach (['stack', 'hint', 'file'] as $name) {
        if (\strlen($frame) <= PREFIX_BYTES + Kind::LIMITS[Kind::ERROR][0]) {
            break;
        }
        unset($fields[$name]);
        $frame = encodeFields(Kind::ERROR, $id, $fields);
    }
    return $frame;
}

/**
 * As many of these paths as the header of one `ready` or `loaded` takes.
 *
 * @param list<string> $files
 * @return list<string>
 */
function filesThatFit(array $files): array
{
    $left = Kind::LIMITS[Kind::READY][0] - 1024;
    foreach ($files as $count => $file) {
        $left -= \strlen((string) \json_encode($file, JSON_FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE)) + 1;
        if ($left < 0) {
            return \array_slice($files, 0, $count);
        }
    }
    return $files;
}

/**
 * Output in pieces of at most one `log` each, cut between characters.
 *
 * @return list<string>
 */
function logPieces(string $text): array
{
    $most = Kind::LIMITS[Kind::LOG][1];
    $pieces = [];
    for ($at = 0; $at < \strlen($text); $at = $end) {
        $end = \min($at + $most, \strlen($text));
        // At most three bytes of a character follow its first one.
        for ($back = 0; $back < 3 && $end < \strlen($text) && (\ord($text[$end]) & 0xc0) === 0x80; $back++) {
            $end--;
        }
        $pieces[] = \substr($text, $at, $end - $at);
    }
    return $pieces;
}

/**
 * @param string $text header of a frame
 * @return array<string, mixed>
 * @throws ProtocolError
 */
function parseHeader(string $text): array
{
    if ($text === '') {
        return [];
    }
    $value = \json_decode($text, true);
    // A list and an object are both arrays here; only the text tells them apart.
    if (!\is_array($value) || $text[\strspn($text, " \t\r\n")] !== '{') {
        throw new ProtocolError(
            $value === null ? 'frame header is not JSON' : 'frame header is not a JSON object',
        );
    }
    return $value;
}

/** Text of any origin as UTF-8, which the body of a `log` must be. */
function toUtf8(string $text): string
{
    if (\preg_match('//u', $text) === 1) {
        return $text;
    }
    return (string) \json_decode((string) \json_encode($text, \JSON_INVALID_UTF8_SUBSTITUTE));
}

/** Cuts a byte stream into frames, whatever way the transport splits it. Holds at most one unfinished frame. */
final class FrameReader
{
    private int $maxFrameBytes = MAX_FRAME_BYTES;
    /** Most bytes of a call's body. */
    private int $maxCallBytes = Kind::LIMITS[Kind::CALL][1];
    private string $bytes = '';
    private int $at = 0;
    /** @var array{0: int, 1: int, 2: string}|null kind, id and header of a large frame whose body is not all there */
    private ?array $large = null;
    private string $body = '';
    private int $missing = 0;

    /** The owner has learnt the function's `max_body_bytes`. */
    public function allowBodies(int $bytes): void
    {
        $this->maxFrameBytes += $bytes;
        $this->maxCallBytes += $bytes;
    }

    /** Bytes to ask of the socket: no more than the rest of a large frame, so that its body is one string of its own. */
    public function wanted(): int
    {
        return $this->missing > 0 ? \min($this->missing, LARGE_READ_BYTES) : READ_BYTES;
    }

    public function push(string $chunk): void
    {
        if ($this->missing > 0) {
            if (\strlen($chunk) <= $this->missing) {
                $this->body .= $chunk;
                $this->missing -= \strlen($chunk);
                return;
            }
            $this->body .= \substr($chunk, 0, $this->missing);
            $chunk = \substr($chunk, $this->missing);
            $this->missing = 0;
        }
        if ($this->at === 0) {
            // Appended in place: a large frame that comes in many pieces is not copied for each of them.
            $this->bytes .= $chunk;
            return;
        }
        $this->bytes = \substr($this->bytes, $this->at) . $chunk;
        $this->at = 0;
    }

    /**
     * @return array{0: int, 1: int, 2: string, 3: string}|null kind, id, header text, body of the next whole frame
     * @throws ProtocolError
     */
    public function next(): ?array
    {
        if ($this->large !== null) {
            return $this->missing > 0 ? null : $this->takeLarge();
        }
        $held = \strlen($this->bytes) - $this->at;
        if ($held < PREFIX_BYTES) {
            if ($held === 0) {
                $this->bytes = '';
                $this->at = 0;
            } elseif ($held >= 4) {
                $this->checkLength(\unpack('N', $this->bytes, $this->at)[1]);
            }
            return null;
        }
        ['l' => $length, 'k' => $kind, 'i' => $id, 'h' => $headerBytes] =
            \unpack('Nl/Ck/Ni/Nh', $this->bytes, $this->at);
        if ($length < FIXED_BYTES || $length > $this->maxFrameBytes) {
            $this->checkLength($length);
        }
        [$maxHeader, $maxBody] = Kind::LIMITS[$kind] ?? [-1, -1];
        $bodyBytes = $length - FIXED_BYTES - $headerBytes;
        if ($headerBytes > $maxHeader || $bodyBytes < 0 || $bodyBytes > $maxBody) {
            $this->checkParts($kind, $headerBytes, $bodyBytes);
        }
        if ($held < $length + 4) {
            if ($bodyBytes >= LARGE_BYTES && $held >= PREFIX_BYTES + $headerBytes) {
                $this->beginLarge($kind, $id, $headerBytes, $bodyBytes);
            }
            return null;
        }
        $headerAt = $this->at + PREFIX_BYTES;
        $this->at += $length + 4;
        $bodyAt = $headerAt + $headerBytes;
        return [
            $kind,
            $id,
            \substr($this->bytes, $headerAt, $headerBytes),
            $bodyAt === $this->at ? '' : \substr($this->bytes, $bodyAt, $this->at - $bodyAt),
        ];
    }

    private function beginLarge(int $kind, int $id, int $headerBytes, int $bodyBytes): void
    {
        $headerAt = $this->at + PREFIX_BYTES;
        $this->large = [$kind, $id, \substr($this->bytes, $headerAt, $headerBytes)];
        $this->body = \substr($this->bytes, $headerAt + $headerBytes);
        $this->missing = $bodyBytes - \strlen($this->body);
        $this->bytes = '';
        $this->at = 0;
    }

    /** @return array{0: int, 1: int, 2: string, 3: string} */
    private function takeLarge(): array
    {
        $frame = [...$this->large, $this->body];
        $this->large = null;
        $this->body = '';
        return $frame;
    }

    private function checkParts(int $kind, int $headerBytes, int $bodyBytes): void
    {
        if (!isset(Kind::LIMITS[$kind])) {
            throw new ProtocolError("unknown frame kind $kind");
        }
        if ($bodyBytes < 0) {
            throw new ProtocolError('frame header is longer than its frame');
        }
        [$maxHeader, $maxBody] = Kind::LIMITS[$kind];
        if ($headerBytes > $maxHeader) {
            throw new ProtocolError("header of a frame of kind $kind is $headerBytes bytes, above $maxHeader");
        }
        $maxBody = $kind === Kind::CALL ? $this->maxCallBytes : $maxBody;
        if ($bodyBytes > $maxBody) {
            throw new ProtocolError("body of a frame of kind $kind is $bodyBytes bytes, above $maxBody");
        }
    }

    private function checkLength(int $length): void
    {
        if ($length < FIXED_BYTES) {
            throw new ProtocolError("frame length $length is below " . FIXED_BYTES);
        }
        if ($length > $this->maxFrameBytes) {
            throw new ProtocolError("frame length $length is above {$this->maxFrameBytes}");
        }
    }
}
