package frazil;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.exceptions.NotAuthorizedException;
import org.apache.iceberg.rest.ErrorHandler;
import org.apache.iceberg.rest.HTTPClient;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.rest.RESTClient;
import org.apache.iceberg.rest.RESTUtil;
import org.apache.iceberg.rest.auth.AuthSession;
import org.apache.iceberg.rest.responses.ErrorResponse;

/**
 * Iceberg's REST catalog, which asks once more with a new token when the catalog refuses the one that it was shown.
 *
 * <p>A refused request was not done, a commit neither: it is sent again as it was. All requests are counted, but for those that
 * Iceberg's client repeats by itself.
 */
public final class RestCatalog extends RESTCatalog {
  /** What the REST specification answers to a token that has expired. */
  private static final int TIMED_OUT = 419;

  /** What says of a request that it came at a bad time, and not that it was a bad one. */
  private static final Set<Integer> LATER = Set.of(408, 425, 429);

  /** Made by Iceberg, which finds it by its name. */
  public RestCatalog() {
    super(RestCatalog::client);
  }

  private static RESTClient client(Map<String, String> config) {
    HTTPClient.Builder builder = HTTPClient.builder(config).uri(config.get(CatalogProperties.URI));
    return asking(builder.withHeaders(RESTUtil.configHeaders(config)).build(), AuthSession.EMPTY);
  }

  private static RESTClient asking(RESTClient client, AuthSession session) {
    Class<?>[] kinds = {RESTClient.class};
    return (RESTClient)
        Proxy.newProxyInstance(
            RestCatalog.class.getClassLoader(),
            kinds,
            (proxy, method, arguments) -> {
              if (method.getName().equals("withAuthSession")) {
                return asking((RESTClient) call(client, method, arguments), (AuthSession) arguments[0]);
              }
              replaceHandler(arguments, method.getName().equals("postForm"));
              if (!(session instanceof RestLogin.Lasting)) {
                return call(client, method, arguments);
              }
              RestLogin.Lasting login = (RestLogin.Lasting) session;
              String shown = login.token();
              try {
                return call(client, method, arguments);
              } catch (NotAuthorizedException refused) {
                login.refused(shown);
                return call(client, method, arguments);
              }
            });
  }

  private static Object call(RESTClient client, Method method, Object[] arguments) throws Throwable {
    RestRequests.count(method.getName(), arguments);
    try {
      return method.invoke(client, arguments);
    } catch (InvocationTargetException failed) {
      throw failed.getCause();
    }
  }

  private static void replaceHandler(Object[] arguments, boolean forToken) {
    for (int at = 0; arguments != null && at < arguments.length; at++) {
      if (arguments[at] instanceof ErrorHandler) {
        arguments[at] = new LoginRefused((ErrorHandler) arguments[at], forToken);
      }
    }
  }

  /** Iceberg knows some of the statuses by which a token is refused, or a request for one. */
  private static final class LoginRefused extends ErrorHandler {
    private final ErrorHandler others;
    private final boolean forToken;

    private LoginRefused(ErrorHandler others, boolean forToken) {
      this.others = others;
      this.forToken = forToken;
    }

    @Override
    public ErrorResponse parseResponse(int code, String json) {
      return others.parseResponse(code, json);
    }

    @Override
    public void accept(ErrorResponse error) {
      if (error.code() == TIMED_OUT) {
        throw new NotAuthorizedException("Not authorized: %s", error.message());
      }
      if (forToken && error.code() >= 400 && error.code() < 500 && !LATER.contains(error.code())) {
        throw new NotAuthorizedException(
            "No token was given out: %s: %s (status %s)", error.type(), error.message(), error.code());
      }
      others.accept(error);
    }
  }
}
