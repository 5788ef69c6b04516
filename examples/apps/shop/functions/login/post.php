<?php
// @summary Log in: a token for 15 minutes (PHP)
require_once __DIR__ . '/_limit.php';

const ATTEMPTS_PER_MINUTE = 5;
/** Checked for unknown users, so that the time of a response does not reveal which users exist. */
const NOBODY = '$2y$10$1LKOlK3GeZAm2e4RbqnnqebOKuRUN5zyjf1InEMljzX1XQDS7E8sS';

function base64url(string $bytes): string
{
    return rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=');
}

/** A JSON Web Token, HS256. */
function make_token(string $user, string $secret): string
{
    $head = base64url('{"alg":"HS256","typ":"JWT"}');
    $claims = base64url(json_encode(['sub' => $user, 'exp' => time() + 900]));
    return "$head.$claims." . base64url(hash_hmac('sha256', "$head.$claims", $secret, true));
}

function handler(array $event): array
{
    // schema.json has checked the body.
    ['user' => $user, 'password' => $password] = json_decode($event['body'], true);
    // Per user and address: an attacker elsewhere cannot lock the user out.
    $wait = limit_wait("$user {$event['client']['ip']}", ATTEMPTS_PER_MINUTE);
    if ($wait > 0) {
        return [
            'status' => 429,
            'headers' => ['Retry-After' => $wait],
            'body' => ['error' => 'too many attempts, try again later'],
        ];
    }
    $users = require __DIR__ . '/_users.php';
    $isRight = password_verify($password, $users[$user] ?? NOBODY);
    if (!$isRight || !isset($users[$user])) {
        return ['status' => 401, 'body' => ['error' => 'wrong user or password']];
    }
    $token = make_token($user, $event['env']['TOKEN_SECRET']);
    return ['headers' => ['Cache-Control' => 'no-store'], 'body' => ['token' => $token]];
}
