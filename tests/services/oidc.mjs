// An OpenID issuer: `node oidc.mjs <module of oauth2-mock-server> <secret> <seconds that tokens last>`.
// The server itself takes any secret: here it refuses the others, with the answer that it would give.
const [, , module, secret, seconds] = process.argv;
const { OAuth2Server } = await import(module);
const server = new OAuth2Server();
await server.issuer.keys.generate("RS256");
server.service.on("beforeTokenSigning", (token) => {
  token.payload.exp = Math.floor(Date.now() / 1000) + Number(seconds);
  token.payload.sub = "frazil";
});
server.service.on("beforeResponse", (answer, request) => {
  if (request.body.client_secret !== secret) {
    answer.statusCode = 401;
    answer.body = { error: "invalid_client", error_description: "Invalid client credentials" };
    return;
  }
  answer.body.expires_in = Number(seconds);
  console.log(`token ${request.body.grant_type}`);
});
await server.start(0, "127.0.0.1");
console.log(`issuer ${server.issuer.url}`);
