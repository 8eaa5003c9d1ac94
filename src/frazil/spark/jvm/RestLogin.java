package frazil;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.iceberg.rest.HTTPRequest;
import org.apache.iceberg.rest.RESTClient;
import org.apache.iceberg.rest.auth.AuthConfig;
import org.apache.iceberg.rest.auth.AuthSession;
import org.apache.iceberg.rest.auth.OAuth2Manager;
import org.apache.iceberg.rest.auth.OAuth2Util;
import org.apache.iceberg.rest.responses.OAuthTokenResponse;

/**
 * Iceberg's login by OAuth2, which also recovers.
 *
 * <p>Iceberg renews tokens in the background, and never again once that has failed (apache/iceberg#17756). Here a token that
 * has expired, or that the catalog refused, is replaced by a new one that the credential is shown for.
 */
public final class RestLogin extends OAuth2Manager {
  /** When a token was refused last, by the credential that it was got with: other tokens from before may be revoked, too. */
  private static final Map<String, Long> REFUSED = new ConcurrentHashMap<>();

  private volatile RESTClient tokens;

  /** Made by Iceberg, which finds it by its name. */
  public RestLogin(String name) {
    super(name);
  }

  @Override
  public OAuth2Util.AuthSession catalogSession(RESTClient client, Map<String, String> properties) {
    OAuth2Util.AuthSession first = super.catalogSession(client, properties);
    return lasting(client, AuthConfig.fromProperties(properties), first);
  }

  @Override
  public AuthSession tableSession(RESTClient client, Map<String, String> properties) {
    if (tokens == null) {
      tokens = client;
    }
    return super.tableSession(client, properties);
  }

  @Override
  protected OAuth2Util.AuthSession newSessionFromTokenResponse(AuthConfig login, OAuth2Util.AuthSession parent) {
    return lasting(tokens, login, super.newSessionFromTokenResponse(login, parent));
  }

  private OAuth2Util.AuthSession lasting(RESTClient client, AuthConfig login, OAuth2Util.AuthSession first) {
    if (login.credential() == null || login.credential().isEmpty()) {
      return first;
    }
    return new Lasting(client.withAuthSession(AuthSession.EMPTY), login, first, refreshExecutor());
  }

  /** A session whose token is another one from time to time. */
  static final class Lasting extends OAuth2Util.AuthSession {
    private final RESTClient client;
    private final AuthConfig login;
    private final ScheduledExecutorService early;
    private volatile OAuth2Util.AuthSession current;
    private volatile long since = System.nanoTime();

    private Lasting(RESTClient client, AuthConfig login, OAuth2Util.AuthSession first, ScheduledExecutorService early) {
      super(first.headers(), first.config());
      this.client = client;
      this.login = login;
      this.early = early;
      this.current = first;
    }

    @Override
    public HTTPRequest authenticate(HTTPRequest request) {
      OAuth2Util.AuthSession shown = current;
      Long ends = shown.expiresAtMillis();
      Long refused = REFUSED.get(login.credential());
      if ((ends != null && ends <= System.currentTimeMillis()) || (refused != null && refused - since > 0)) {
        renew(shown.token());
      }
      return current.authenticate(request);
    }

    /** A catalog did not accept this token. */
    void refused(String token) {
      REFUSED.put(login.credential(), System.nanoTime());
      renew(token);
    }

    private synchronized void renew(String token) {
      if (!current.token().equals(token)) {
        return; // somebody else was faster
      }
      long began = System.nanoTime();
      OAuthTokenResponse response =
          OAuth2Util.fetchToken(
              client, Map.of(), login.credential(), login.scope(), login.oauth2ServerUri(), login.optionalOAuthParams());
      OAuth2Util.AuthSession bare = new OAuth2Util.AuthSession(Map.of(), login);
      OAuth2Util.AuthSession next =
          OAuth2Util.AuthSession.fromTokenResponse(client, early, response, System.currentTimeMillis(), bare);
      current.close();
      current = next;
      since = began;
    }

    @Override
    public Map<String, String> headers() {
      return current.headers();
    }

    @Override
    public String token() {
      return current.token();
    }

    @Override
    public String tokenType() {
      return current.tokenType();
    }

    @Override
    public Long expiresAtMillis() {
      return current.expiresAtMillis();
    }

    @Override
    public AuthConfig config() {
      return current.config();
    }

    @Override
    public void close() {
      current.close();
    }
  }
}
