package frazil;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.function.Function;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.rest.RESTClient;
import org.apache.iceberg.rest.RESTSessionCatalog;

/** Iceberg's REST catalog, whose requests are counted by what they are about. */
public final class RestCatalog extends RESTCatalog {
  /** Made by Iceberg, which finds it by its name. */
  public RestCatalog() {}

  @Override
  protected RESTSessionCatalog newSessionCatalog(Function<Map<String, String>, RESTClient> client) {
    return super.newSessionCatalog(properties -> counted(client.apply(properties)));
  }

  /** Every method but two is a request, and each of these has its path first. What the client repeats by itself is not seen. */
  private static RESTClient counted(RESTClient client) {
    Class<?>[] types = {RESTClient.class};
    return (RESTClient) Proxy.newProxyInstance(RestCatalog.class.getClassLoader(), types, (proxy, method, given) -> {
      if (given != null && given[0] instanceof String path) {
        Requests.count("catalog", kind(method.getName(), path));
      }
      try {
        Object result = method.invoke(client, given);
        return method.getName().equals("withAuthSession") ? counted((RESTClient) result) : result;
      } catch (InvocationTargetException failed) {
        throw failed.getCause();
      }
    });
  }

  private static String kind(String method, String path) {
    int at = path.indexOf("/namespaces");
    if (at < 0) {
      return switch (path.substring(path.lastIndexOf('/') + 1)) {
        case "config" -> "config";
        case "commit" -> "commit";
        case "rename" -> "rename";
        default -> method.equals("postForm") ? "token" : "other";
      };
    }
    String[] parts = path.substring(at + 1).split("/");
    return switch (parts.length < 3 ? "" : parts[2]) {
      case "tables" -> parts.length > 4 ? ofTable(parts[4]) : onTables(method, parts.length == 4);
      case "register" -> "create";
      case "views", "register-view" -> "view";
      default -> "namespace";
    };
  }

  private static String onTables(String method, boolean one) {
    return switch (method) {
      case "head" -> "exists";
      case "get" -> one ? "load" : "list";
      case "post" -> one ? "commit" : "create";
      default -> "drop";
    };
  }

  private static String ofTable(String what) {
    return switch (what) {
      case "metrics" -> "report";
      case "credentials", "sign" -> "credentials";
      case "plan", "tasks" -> "plan";
      default -> "other";
    };
  }
}
