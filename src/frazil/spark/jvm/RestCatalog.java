package frazil;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
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
 * <p>A refused request was not done, a commit neither: it is sent again as it was.
 */
public final class RestCatalog extends RESTCatalog {
  /** What the REST specification answers to a token that has expired. */
  private static final int TIMED_OUT = 419;

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
              replaceHandler(arguments);
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
    try {
      return method.invoke(client, arguments);
    } catch (InvocationTargetException failed) {
      throw failed.getCause();
    }
  }

  private static void replaceHandler(Object[] arguments) {
    for (int at = 0; arguments != null && at < arguments.length; at++) {
      if (arguments[at] instanceof ErrorHandler) {
        arguments[at] = new TimedOut((ErrorHandler) arguments[at]);
      }
    }
  }

  /** Iceberg knows one of the two statuses by which a token is refused. */
  private static final class TimedOut extends ErrorHandler {
    private final ErrorHandler others;

    private TimedOut(ErrorHandler others) {
      this.others = others;
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
      others.accept(error);
    }
  }
}
